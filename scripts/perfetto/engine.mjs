// Runs Perfetto's trace_processor, as Perfetto's UI ships it for browsers, without a browser: requests of its RPC come from
// standard input, and answers go to standard output.
//
//   node engine.mjs FOLDER      the folder of the UI's release, with engine_bundle.js
import { readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import vm from 'node:vm';

const folder = process.argv[2];
console.log = console.warn = () => {}; // Standard output is for answers.

// The bundle is the script of a worker, and refuses to run in anything else.
process.type = 'renderer';
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = class {};
globalThis.location = { href: 'file:///' };
globalThis.XMLHttpRequest = class {
    open(_method, url) {
        this.file = join(folder, basename(url));
    }

    send() {
        this.response = readFileSync(this.file);
    }
};

const bundle = join(folder, 'engine_bundle.js');
vm.runInThisContext(readFileSync(bundle, 'utf8'), { filename: bundle });
const { port1: page, port2: worker } = new MessageChannel();
self.onmessage({ data: worker });
page.on('message', (answer) => process.stdout.write(answer));
process.stdin.on('data', (request) => page.postMessage(new Uint8Array(request)));
process.stdin.on('end', () => page.close());
