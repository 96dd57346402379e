"""`python -m tests.standins.llama_cpp MODEL [EYE]`: a real llama.cpp server on a free port, until its input ends."""

import sys

import xllamacpp


def main() -> None:
    """Serve the model under the name `tiny`; says where."""
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    if len(sys.argv) > 2:
        params.mmproj.path = sys.argv[2]
    params.model_alias = {"tiny"}
    params.n_ctx, params.n_parallel, params.port = 8192, 2, 0
    params.warmup = False
    params.cpuparams.n_threads = 1
    server = xllamacpp.Server(params)
    print(f"ready {server.listening_address}", flush=True)  # noqa: T201
    sys.stdin.read()


if __name__ == "__main__":
    main()
