//! Compares random programs of streams, events and default streams with a simple model of what must happen
//! before what. If a rule is missing from our own tests, we may still find it here, because the model knows
//! only the rules.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

use std::ffi::c_void;
use std::sync::{Arc, LazyLock, Mutex};

use gpustream_cpu::{CpuOptions, open_with};
use gpustream_hal::{DefaultStream, Device, EventOptions, RawEvent, RawStream, StreamOptions};
use proptest::prelude::*;

/// Stream 0 is the legacy stream, and these synchronise with it. The last of them is the thread's own default stream, which
/// does that too.
const BLOCKING: [usize; 3] = [1, 2, 3];
const STREAMS: usize = 7;
const EVENTS: usize = 3;

/// What a program can do. `Run` records the operation's number after some delay.
#[derive(Clone, Copy, Debug)]
enum Action {
    Run { stream: usize, delay: u8 },
    Record { event: usize, stream: usize, timed: bool },
    Wait { stream: usize, event: usize, timed: bool },
    Synchronize { stream: usize },
}

fn action() -> impl Strategy<Value = Action> {
    let (stream, event) = (0..STREAMS, 0..EVENTS);
    prop_oneof![
        6 => (stream.clone(), 0..4u8).prop_map(|(stream, delay)| Action::Run { stream, delay }),
        3 => (event.clone(), stream.clone(), any::<bool>())
            .prop_map(|(event, stream, timed)| Action::Record { event, stream, timed }),
        3 => (stream.clone(), event, any::<bool>())
            .prop_map(|(stream, event, timed)| Action::Wait { stream, event, timed }),
        1 => stream.prop_map(|stream| Action::Synchronize { stream }),
    ]
}

/// Sets of operations, one bit each.
type Set = u128;

/// For each operation, those that must have run before it.
#[derive(Default)]
struct Model {
    streams: [Set; STREAMS],
    events: [[Set; EVENTS]; 2],
    before: Vec<Set>,
}

impl Model {
    /// Returns the operations that a stream's next operation must follow.
    fn order(&self, stream: usize) -> Set {
        let mut set = self.streams[stream];
        if stream == 0 {
            for other in BLOCKING {
                set |= self.streams[other];
            }
        } else if BLOCKING.contains(&stream) {
            set |= self.streams[0];
        }
        set
    }

    fn apply(&mut self, action: Action) {
        match action {
            Action::Run { stream, .. } => {
                let before = self.order(stream);
                self.streams[stream] = before | 1 << self.before.len();
                self.before.push(before);
            }
            Action::Record { event, stream, timed } => {
                self.events[usize::from(timed)][event] = self.order(stream);
            }
            Action::Wait { stream, event, timed } => {
                self.streams[stream] |= self.events[usize::from(timed)][event];
            }
            Action::Synchronize { .. } => {}
        }
    }
}

struct Note {
    number: usize,
    delay: u8,
    log: Arc<Mutex<Vec<usize>>>,
}

unsafe extern "C" fn note(data: *mut c_void) {
    // SAFETY: made by `Box::into_raw` below, for this call only.
    let note = unsafe { Box::from_raw(data.cast::<Note>()) };
    for _ in 0..u32::from(note.delay) * 40 {
        std::thread::yield_now();
    }
    note.log.lock().unwrap().push(note.number);
}

struct Machine {
    device: Arc<dyn Device>,
    streams: [RawStream; STREAMS],
    events: [[RawEvent; EVENTS]; 2],
}

static MACHINES: LazyLock<Vec<Machine>> = LazyLock::new(|| {
    [1, 3]
        .map(|workers| {
            let device = open_with(CpuOptions::default().workers(workers)).unwrap();
            let streams = std::array::from_fn(|index| match index {
                0 => device.stream_default(DefaultStream::Legacy).unwrap(),
                3 => device.stream_default(DefaultStream::PerThread).unwrap(),
                _ if BLOCKING.contains(&index) => {
                    device.stream_create(StreamOptions::default().blocking_with_default(true)).unwrap()
                }
                _ => device.stream_create(StreamOptions::default()).unwrap(),
            });
            let events = [EventOptions::default(), EventOptions::default().timing(true)]
                .map(|options| std::array::from_fn(|_| device.event_create(options).unwrap()));
            Machine { device, streams, events }
        })
        .into()
});

impl Machine {
    /// Runs a program. Returns its operations in the order that they ran in.
    fn run(&self, program: &[Action]) -> Vec<usize> {
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut number = 0;
        for &action in program {
            // SAFETY: all handles are alive.
            unsafe {
                match action {
                    Action::Run { stream, delay } => {
                        let note = Box::new(Note { number, delay, log: log.clone() });
                        number += 1;
                        let data = Box::into_raw(note).cast();
                        self.device.stream_host_fn(self.streams[stream], self::note, data).unwrap();
                    }
                    Action::Record { event, stream, timed } => {
                        let event = self.events[usize::from(timed)][event];
                        self.device.event_record(event, self.streams[stream]).unwrap();
                    }
                    Action::Wait { stream, event, timed } => {
                        let event = self.events[usize::from(timed)][event];
                        self.device.stream_wait_event(self.streams[stream], event).unwrap();
                    }
                    Action::Synchronize { stream } => {
                        self.device.stream_synchronize(self.streams[stream]).unwrap();
                        let done = log.lock().unwrap().clone();
                        let mine = program_numbers(program, stream);
                        assert!(
                            mine.filter(|&n| n < number).all(|n| done.contains(&n)),
                            "{stream} was not done"
                        );
                    }
                }
            }
        }
        self.device.synchronize().unwrap();
        let log = log.lock().unwrap();
        log.clone()
    }
}

/// Numbers of the operations that a program submits to a stream.
fn program_numbers(program: &[Action], stream: usize) -> impl Iterator<Item = usize> {
    let runs = program.iter().filter_map(|action| match action {
        Action::Run { stream, .. } => Some(*stream),
        _ => None,
    });
    runs.enumerate().filter(move |(_, on)| *on == stream).map(|(number, _)| number)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn nothing_runs_before_what_it_must_follow(program in prop::collection::vec(action(), 1..80)) {
        // Events keep their records from one program to the next. The model does not know these, but it need not, because
        // they are done.
        let mut model = Model::default();
        for &action in &program {
            model.apply(action);
        }
        for machine in MACHINES.iter() {
            let log = machine.run(&program);
            prop_assert_eq!(log.len(), model.before.len());
            let mut seen: Set = 0;
            for number in log {
                let missing = model.before[number] & !seen;
                prop_assert_eq!(missing, 0, "operation {} ran before {:#b}", number, missing);
                seen |= 1 << number;
            }
        }
    }
}
