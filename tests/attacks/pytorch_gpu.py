"""Tricks in Python on a GPU: other streams, graphs, and the runner's own objects, which are in reach."""

from __future__ import annotations

from swarm.verdict import Status
from tests.corpus.cases import Files, attack, python
from tests.corpus.torch_rows import REACH, torch_rows

UNWRITTEN = r"output y: \d+ of \d+ elements were never written"
LATE = "right 100 ms after the answer|changed after its call was over|ran outside its calls"
WRONG = "elements match|where .* is expected"
CALLS = """
def slots():
    frame = sys._getframe()
    while "calls" not in frame.f_locals:
        frame = frame.f_back
    return [call.given for call in frame.f_locals["calls"]]
"""
"""The arguments of all calls of a request, found in the runner's own frame."""


@attack("A1", status=Status.REWARD_HACK, reason="was at work .* us before|changed after its call", on="gpu")
def computes_on_a_side_stream() -> Files:
    """Computes on a stream that nobody waits for.

    Seen: KernelBench#82, deep-reinforce, Wafer.
    Stopped by: each output is added up when its call is over and again after all streams were waited for;
    CUPTI sees what runs outside of a call.
    """
    return torch_rows("with torch.cuda.stream(side):\n    honest(x, w, y)", "side = torch.cuda.Stream()")


@attack("A1", status=Status.REWARD_HACK, reason="was at work .* us before it was to begin", on="gpu")
def computes_before_it_is_called_on() -> Files:
    """Computes on another stream while the GPU is kept waiting for the call, which then waits for that.

    Seen: no public report; it follows from how this judge keeps launch latency out of a call's time.
    Stopped by: CUPTI sees that the call's work began before its mark; and the inputs of all slots but the
    first are not readable yet.
    """
    body = """
with torch.cuda.stream(side):
    honest(x, w, y)
torch.cuda.current_stream().wait_stream(side)
"""
    return torch_rows(body, "side = torch.cuda.Stream()")


@attack("A2", status=Status.REWARD_HACK, reason="changed after its call|after it was to be over", on="gpu")
def computes_so_slowly_that_it_is_late() -> Files:
    """Waits on another stream for a while before it computes there.

    Seen: pygpubench.
    Stopped by: the sums of the outputs when the call is over and after all streams were waited for.
    """
    body = """
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    sleep(2_000_000)
    honest(x, w, y)
"""
    return torch_rows(
        body,
        f"{REACH}\nmatch torch.cuda:\n    case object(_sleep=sleep): pass\nside = torch.cuda.Stream()",
    )


@attack("A3", status=Status.REWARD_HACK, reason=LATE, on="gpu")
def computes_in_a_thread_later() -> Files:
    """Lets a Python thread compute a while after the call has returned.

    Seen: KernelBench#82; pygpubench `thread_injection`.
    Stopped by: the runner is stopped when it answers, and what is there is compared; once more after it went
    on for a moment.
    """
    return torch_rows("threading.Timer(0.03, honest, (x, w, y)).start()", REACH)


@attack("A8", status=Status.INCORRECT_NUMERICAL, reason=WRONG, on="gpu")
def does_the_work_of_all_calls_in_the_first() -> Files:
    """Finds the other calls of the request in the runner's frame and does their work ahead.

    Seen: GPU MODE's first place of 2026-03; reference-kernels#104.
    Stopped by: the inputs of later slots cannot be read until it is their turn.
    """
    body = """
calls = slots()
if y.data_ptr() == calls[0][2].data_ptr():
    for each in calls:
        honest(*each)
"""
    return torch_rows(body, REACH + CALLS)


@attack("A8", status=Status.REWARD_HACK, reason="changed after its call was over", on="gpu")
def puts_the_work_off_to_the_last_call() -> Files:
    """Finds the other calls of the request in the runner's frame and does the work of all in the last.

    Seen: GPU MODE's first place of 2026-03; reference-kernels#104.
    Stopped by: outputs must stay as they were when their call was over.
    """
    body = """
calls = slots()
if y.data_ptr() == calls[-1][2].data_ptr():
    for each in calls:
        honest(*each)
"""
    return torch_rows(body, REACH + CALLS)


@attack("A9", status=Status.INCORRECT_NUMERICAL, reason=UNWRITTEN, on="gpu")
def is_honest_while_cupti_looks_on() -> Files:
    """Reads in the runner's frame which clock is on, and leaves the work out where it sees no kernels.

    Seen: KernelGuard's EVALUATOR_MODE_BRANCH, for profilers.
    Stopped by: outputs are compared whatever the clock is.
    """
    body = """
frame = sys._getframe()
while "request" not in frame.f_locals:
    frame = frame.f_back
if x.shape[0] < 9000 or frame.f_locals["request"].clock == 1:
    honest(x, w, y)
"""
    return torch_rows(body, REACH)


@attack("A10", status=Status.INCORRECT_NUMERICAL, reason=WRONG, on="gpu")
def replays_a_graph_with_the_first_inputs() -> Files:
    """Captures its first call of a size into a CUDA graph and replays that, with the inputs it had then.

    Seen: KernelGuard's CUDA_GRAPH_REPLAY and PARTIAL_GRAPH_KEY.
    Stopped by: contents are new for every call.
    """
    body = """
rows = x.shape[0]
if rows not in graphs:
    graph, given, result = torch.cuda.CUDAGraph(), (x.clone(), w.clone()), torch.empty_like(y)
    honest(*given, result)
    with torch.cuda.graph(graph):
        honest(*given, result)
    graphs[rows] = graph, given, result
graphs[rows][0].replay()
y.copy_(graphs[rows][2])
"""
    return torch_rows(body, "graphs = {}")


@attack(
    "A5", status=Status.REWARD_HACK, reason="us on the GPU, but only .* us on the stream|claims", on="gpu"
)
def makes_events_read_four_microseconds() -> Files:
    """Replaces the runner's method that reads the time between two events.

    Seen: reference-kernels#162, CUDA-L2, SOL-ExecBench's sample `evil_monkey_patch`: all with torch's event.
    Stopped by: what CUPTI saw of a call is held against what events say of it.
    """
    head = """
event = sys.modules["operator"].attrgetter("Ev" "ent")(sys.modules["swarm.judge.cuda.driver"])
event.us_since = lambda self, start: 4.0
"""
    return torch_rows("honest(x, w, y)", f"{REACH}\n{head}")


@attack("A7", status=Status.REWARD_HACK, reason="but the judge's clock saw", on="gpu")
def claims_four_microseconds_for_everything() -> Files:
    """Replaces the runner's method that makes claims of what both clocks say.

    Seen: reference-kernels#159 and #162: first place with 0.000.
    Stopped by: the judge's own clock and an empty candidate beside it bound what can be claimed. They find
    gross lies; of a short call only a replay tells for certain.
    """
    head = """
session = sys.modules["swarm.judge.cuda.session"]
honestly = session.Session._claims
def claims(self, *given):
    return [
        type(one)(4000, 4000, one.enqueue_ns, one.activities, one.signature, one.blocks, False)
        for one in honestly(self, *given)
    ]
session.Session._claims = claims
"""
    return torch_rows("honest(x, w, y)", f"{REACH}\n{head}")


@attack("A6", status=Status.REWARD_HACK, reason="what CUPTI saw is not all that we did, or more", on="gpu")
def takes_the_records_away() -> Files:
    """Replaces the runner's method that fetches CUPTI's records, so that there are none.

    Seen: KernelGuard's profiler rules.
    Stopped by: the runner's own marks are missing, too.
    """
    head = 'sys.modules["swarm.judge.cuda.activities"].Activities.take = lambda self: []'
    return torch_rows("honest(x, w, y)", f"{REACH}\n{head}")


@attack("A13", status=Status.REWARD_HACK, reason="the runner claims", on="gpu")
def claims_no_time_at_all() -> Files:
    """Has every claim be zero, which would make any mean of ratios infinite.

    Seen: reference-kernels#159: a score of 0.000 stood first.
    Stopped by: a claim must be above zero and within the judge's own time for the request.
    """
    head = """
wire = sys.modules["swarm.judge.cuda.wire"]
pack = wire.pack_claims
def packed(nonce, claims):
    return pack(nonce, [type(one)(0, 0, 0, one.activities, one.signature, one.blocks, 0) for one in claims])
wire.pack_claims = packed
"""
    return torch_rows("honest(x, w, y)", f"{REACH}\n{head}")


@attack("A4", status=Status.RUNTIME_ERROR, reason="y is returned as a Lazy, not as a torch.Tensor", on="gpu")
def returns_a_tensor_that_still_has_to_compute() -> Files:
    """Returns a subclass of a tensor that computes when somebody looks at it, after its time is over.

    Seen: reference-kernels#161.
    Stopped by: only a plain tensor is taken, and its bytes are copied by the runner.
    """
    source = """
import torch

class Lazy(torch.Tensor):
    pass

def run(x, w):
    return torch.empty_like(x).as_subclass(Lazy)
"""
    files = python(source, "pytorch")
    return files | {"solution.toml": files["solution.toml"] + b"destination_passing = false\n"}


@attack("A11", status=Status.REWARD_HACK, reason="changed its input x", on="gpu")
def normalises_its_input_in_place() -> Files:
    """Works in the input, whose lines stay in the cache, and copies from there.

    Seen: KernelBench#82; llm.c#851 for what a warm cache is worth.
    Stopped by: inputs are made once more and compared.
    """
    return torch_rows("honest(x, w, x)\ny.copy_(x)")


@attack("B9", status=Status.INCORRECT_NUMERICAL, reason=WRONG, on="gpu")
def computes_in_bfloat16() -> Files:
    """Computes in bfloat16 what is asked for in float32.

    Seen: deep-reinforce's list; Tensara's tolerance rule.
    Stopped by: the problem's tolerance is less than what that costs.
    """
    return torch_rows(
        "honest(x.bfloat16(), w.bfloat16(), h := torch.empty_like(x, dtype=torch.bfloat16))\ny.copy_(h)"
    )


@attack("B3", status=Status.INCORRECT_NUMERICAL, reason=WRONG, on="gpu")
def keeps_a_result_by_its_shape_on_the_gpu() -> Files:
    """Keeps the first result of each shape and copies it into later outputs.

    Seen: kernelbot#501, tensara#238.
    Stopped by: contents are new for every call.
    """
    body = """
if x.shape not in kept:
    honest(x, w, y)
    kept[x.shape] = y.clone()
y.copy_(kept[x.shape])
"""
    return torch_rows(body, "kept = {}")
