"""Lies about time, told from Python on the CPU."""

from __future__ import annotations

from swarm.verdict import Status
from tests.corpus.cases import Files, attack
from tests.corpus.torch_rows import REACH, torch_rows

CLOCK = "but the (judge's clock|clock of its cores) saw"
LATE = "right 100 ms after the answer and not yet when it came"
ALONE = "other processes were in its box when it answered"


@attack("A5", status=Status.REWARD_HACK, reason=CLOCK)
def replaces_the_runners_clock() -> Files:
    """Puts a function of its own in the place of the one that times it, which says 5 us whatever happens.

    Seen: reference-kernels#162; CUDA-L2; SOL-ExecBench's sample `evil_monkey_patch`.
    Stopped by: what the runner says is a claim, which the judge's clock and the cores' bound.
    """
    head = """
def claim(native, run, arguments):
    run(*arguments)
    return 5_000

main._timed = claim
"""
    return torch_rows("honest(x, w, y, 60)", REACH + head)


@attack("A13", status=Status.REWARD_HACK, reason=CLOCK)
def collapses_the_time_of_one_shape() -> Files:
    """Tells the truth about every workload but one, which it claims took 2 us.

    Seen: reference-kernels#159 and #162, where one shape of 0 us made the geometric mean 0.
    Stopped by: the judge's clock and the cores' bound the claims of each workload by itself.
    """
    head = """
measure = main._timed

def claim(native, run, arguments):
    spent = measure(native, run, arguments)
    return 2_000 if len(arguments[0]) == 32 else spent

main._timed = claim
"""
    return torch_rows("honest(x, w, y, 60)", REACH + head)


@attack("A5", status=Status.REWARD_HACK, reason=r"claims \[-")
def claims_less_than_nothing() -> Files:
    """Claims a negative time, for statistics that divide by it or sort it first.

    Seen: reference-kernels#162, whose score was 0.000.
    Stopped by: a claim is positive, and all of a request's together are no longer than the request.
    """
    head = """
def claim(native, run, arguments):
    run(*arguments)
    return -1_000

main._timed = claim
"""
    return torch_rows("honest(x, w, y, 60)", REACH + head)


@attack("A6", status=Status.REWARD_HACK, reason=CLOCK)
def detours_the_native_clock() -> Files:
    """Overwrites the machine code of the function that times it with a jump to one of its own.

    Seen: pygpubench's exploits `function_detour` and `got_patch`.
    Stopped by: the judge's clock and the cores'; nothing in the candidate's process is final.
    """
    head = """
libc = ctypes.CDLL(None)
native = sys._getframe(0)
while "native" not in native.f_locals or native.f_code.co_name != "_serve_python":
    native = native.f_back
native = native.f_locals["native"]

def claim(call, arguments, result):
    call(*arguments)
    result[0] = id(None)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(None))
    return 5_000

Signature = ctypes.PYFUNCTYPE(
    ctypes.c_int64, ctypes.py_object, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p)
)
ours = Signature(claim)
target = ctypes.cast(ours, ctypes.c_void_p).value.to_bytes(8, "little")
if os.uname().machine == "x86_64":
    code = b"\\x48\\xb8" + target + b"\\xff\\xe0"  # mov rax, target; jmp rax
else:
    code = bytes.fromhex("50000058 00021fd6") + target  # ldr x16, .+8; br x16
place = ctypes.cast(native.swarm_timed_python, ctypes.c_void_p).value
page = place & ~4095
assert libc.mprotect(ctypes.c_void_p(page), 8192, 7) == 0
ctypes.memmove(place, code, len(code))
"""
    return torch_rows("honest(x, w, y, 60)", REACH + head)


@attack("A7", status=Status.REWARD_HACK, reason=CLOCK)
def rewrites_the_answer_on_its_way() -> Files:
    """Puts itself between the runner's socket and the judge, and shortens the times that pass through.

    Seen: pygpubench's exploit `pipe_interpose`; pygpubench#22.
    Stopped by: the message holds nothing but claims, which the judge's clock and the cores' bound.
    """
    head = """
import math
socket = sys.modules["socket"]
frame = sys._getframe(0)
while frame.f_code.co_name != "_serve_python":
    frame = frame.f_back
wire = frame.f_locals["control"]
outside = wire.dup()
inside, replaced = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
os.dup2(replaced.fileno(), wire.fileno())

def pass_on():
    outside.send(inside.recv(65536))  # ready
    while request := outside.recv(1 << 20):
        inside.send(request)
        answer = inside.recv(65536)
        outside.send(answer[:8] + (5_000).to_bytes(8, "little") * (len(answer) // 8 - 1))

threading.Thread(target=pass_on, daemon=True).start()
"""
    return torch_rows("honest(x, w, y, 60)", REACH + head)


@attack("A4", status=Status.REWARD_HACK, reason=CLOCK)
def works_when_its_result_is_dropped() -> Files:
    """Returns an object that does the work when it is let go, which is after the clock was read.

    Seen: reference-kernels#161 (a tensor subclass that computes when it is compared); METR's list.
    Stopped by: results lie in the judge's memory, and its clocks cover the whole request.
    """
    head = """
class Later:
    def __init__(self, *tensors):
        self.tensors = tensors

    def __del__(self):
        honest(*self.tensors, 60)
"""
    return torch_rows("honest(x[:1], w, y[:1])\nreturn Later(x, w, y)", head)


@attack("A8", status=Status.REWARD_HACK, reason="one call of a request did the work of the others")
def first_call_works_for_all() -> Files:
    """Does the work of a request's calls in the first of them, and nothing in the others.

    Seen: reference-kernels#104, which stood first with it; GPU MODE's news of 2026-03-09.
    Stopped by: calls that are below the physical floor beside others that are not.
    """
    head = """
done = []
"""
    body = """
frame = sys._getframe(1)
while frame.f_code.co_name != "_serve_python":
    frame = frame.f_back
request = frame.f_locals["request"]
if done != [request[:8]]:
    done[:] = [request[:8]]
    for arguments in frame.f_locals["slots"].unpack(request[8:]):
        honest(*arguments)
"""
    return torch_rows(body, REACH + head)


@attack("A3", status=Status.REWARD_HACK, reason=LATE)
def thread_finishes_late() -> Files:
    """Leaves the work to a thread and returns.

    Seen: KernelBench#82; pygpubench's exploit `thread_injection`; SOL-ExecBench counts Python threads.
    Stopped by: the runner is stopped when it answers, and its outputs are looked at as they were then.
    """
    head = 'start_new_thread = sys.modules["_thread"].start_new_thread  # which does not wait for the start'
    return torch_rows("start_new_thread(honest, (x, w, y))", f"{REACH}\n{head}")


@attack("A3", status=Status.REWARD_HACK, reason=ALONE)
def child_finishes_late() -> Files:
    """Leaves the work to a child in a session of its own, where the signal that stops a group does not go.

    Seen: pygpubench's supervisor, written against it; judging.md's C5.
    Stopped by: the runner has to be the only process in its box when it answers.
    """
    body = """
if os.fork() == 0:
    os.setsid()
    honest(x, w, y)
    os._exit(0)
"""
    return torch_rows(body, REACH)


@attack("A3", status=Status.REWARD_HACK, reason=ALONE)
def helper_process_does_the_work() -> Files:
    """Starts a process when it is loaded that does all the work, on calls that a pipe hands over.

    Seen: pygpubench's supervisor, written against it; judging.md's C5.
    Stopped by: the runner has to be the only process in its box when it answers.
    """
    head = """
hear, tell = os.pipe()
frame = sys._getframe(0)
while frame.f_code.co_name != "_serve_python":
    frame = frame.f_back
slots = frame.f_locals["slots"]
if os.fork() == 0:
    os.setsid()
    while words := os.read(hear, 4096):
        for arguments in slots.unpack(words):
            honest(*arguments)
    os._exit(0)
"""
    body = """
frame = sys._getframe(1)
while frame.f_code.co_name != "_serve_python":
    frame = frame.f_back
if frame.f_locals["answer"] == frame.f_locals["nonce"]:
    os.write(tell, frame.f_locals["words"])
"""
    return torch_rows(body, REACH + head)


@attack("C5", status=Status.REWARD_HACK, reason=ALONE)
def leaves_a_process_behind() -> Files:
    """Starts a process in a session of its own that never ends, to slow down whatever is measured next.

    Seen: Datura-ai/lium-io#1140 (work that outlives its process, unnoticed for days).
    Stopped by: the runner has to be the only process in its box when it answers; the box dies as a whole.
    """
    head = """
if os.fork() == 0:
    os.setsid()
    while True:
        pass
"""
    return torch_rows("honest(x, w, y, 60)", REACH + head)
