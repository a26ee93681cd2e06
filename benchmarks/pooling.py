"""Attention pooling of many points: time and memory of a prediction, beside the formula in NumPy.

    python benchmarks/pooling.py                                        # some minutes on two cores
    python benchmarks/pooling.py --points 10000 --queries 1000          # to see that it runs

Each row is a process of its own, whose peak memory is that of the whole process: Python, torch, scikit-learn, the data.
The width is the same in all; how many points it reaches is what the time depends on. NumPy goes through the queries in
blocks, so that it, too, gets by with some memory; above a hundred thousand points it would take too long.
"""

import argparse
import resource
import subprocess
import sys
import time

import numpy as np

BLOCK = 100  # queries at once, in NumPy
PATIENCE = 100_000  # points, to which NumPy is asked
NOISE = 0.3


def data(points: int, queries: int, features: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    X, asked = (draw.uniform(-3, 3, (rows, features)) for rows in (points, queries))
    return X, truth(X) + draw.normal(0, NOISE, points), asked


def truth(X: np.ndarray) -> np.ndarray:
    return np.sin(2 * X[:, 0])


def by_numpy(X: np.ndarray, y: np.ndarray, queries: np.ndarray, width: float) -> np.ndarray:
    said = []
    for q in np.split(queries, range(BLOCK, len(queries), BLOCK)):
        squares = np.zeros((len(q), len(X)))
        for feature in range(X.shape[1]):
            squares += (q[:, None, feature] - X[:, feature]) ** 2
        scores = -squares / (2 * width**2)
        weights = np.exp(scores - scores.max(1, keepdims=True))
        said.append(weights @ y / weights.sum(1))
    return np.concatenate(said)


def one(args: argparse.Namespace) -> None:
    """A line of the table."""
    X, y, queries = data(args.points, args.queries, args.features)
    if args.kernel == "numpy":
        start = fitted = clocks()
        said = by_numpy(X, y, queries, args.width)
    else:
        from regard import NadarayaWatsonRegressor

        model = NadarayaWatsonRegressor(kernel=args.kernel, width=args.width)
        start = clocks()
        model.fit(X, y)
        fitted = clocks()
        said = model.predict(queries)
    end, error = clocks(), float(np.sqrt(np.mean((said - truth(queries)) ** 2)))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
    print(f"{args.kernel:<11} {args.features:8} {args.points:10,} {(fitted - start)[0]:8.2f} {(end - fitted)[0]:10.2f} "
          f"{(end - fitted)[1]:8.2f} {error:8.4f} {most:8.0f}", flush=True)


def clocks() -> np.ndarray:
    """That on the wall, and that of the processor, which does not count what else the machine does."""
    return np.array([time.perf_counter(), time.process_time()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--features", type=int, nargs="+", default=[1, 2, 8])
    parser.add_argument("--width", type=float, default=0.1)
    parser.add_argument("--kernel", nargs="+", default=["gaussian", "boxcar", "triangular", "constant", "numpy"])
    parser.add_argument("--one", action="store_true", help="this line alone, in this process")
    args = parser.parse_args()
    if args.one:
        args.points, args.features, args.kernel = args.points[0], args.features[0], args.kernel[0]
        return one(args)
    print(f"{args.queries:,} queries, width {args.width}\n"
          f"{'kernel':<11} {'features':>8} {'points':>10} {'fit s':>8} {'predict s':>10} "
          f"{'CPU s':>8} {'error':>8} {'peak MB':>8}",
          flush=True)
    for kernel in args.kernel:
        for features in args.features:
            for points in args.points:
                if kernel != "numpy" or points <= PATIENCE:
                    subprocess.run([sys.executable, __file__, "--one", "--points", str(points), "--queries",
                                    str(args.queries), "--features", str(features), "--width", str(args.width),
                                    "--kernel", kernel], check=True)
    return None


if __name__ == "__main__":
    main()
