"""Problems that other projects wrote, as problems of ours: SOL-ExecBench, FlashInfer-Trace, KernelBench.

What is read is a stranger's: its text is parsed, never executed here; what must run, a KernelBench module,
runs in the judge's sandboxed reference process. Each format makes Drafts; `draft` makes files of them,
`folder` puts those into place, `intake` does it for a whole source and says what became of every problem.
"""
