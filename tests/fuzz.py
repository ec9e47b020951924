#!/usr/bin/env python3
"""Runs the fuzz targets, reduces the inputs they find, and turns every crash into a regression.

    tests/fuzz.py [--minutes M] [--target NAME ...]

Each target runs for M minutes (60 unless told) on top of its committed corpus and of what earlier runs found, which
is kept in fuzz/found/NAME and cut down to what adds coverage afterwards. A crash is minimised and put into
fuzz/corpus/NAME, where `cargo test` replays it from then on: give it a name, fix the cause, commit both.

Needs a nightly toolchain (`rustup toolchain install nightly`); cargo-fuzz is installed when it is missing.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUZZ = ROOT / "fuzz"
CARGO_FUZZ = ["cargo", "+nightly", "fuzz"]
# Longest input. Longer ones are slower and find nothing more.
INPUT_BYTES_MAX = 4096
# Longest time for one input under the sanitizer. More counts as a crash.
INPUT_SECONDS_MAX = 10


def prepare():
    toolchains = subprocess.run(["rustup", "toolchain", "list"], capture_output=True, text=True, check=True).stdout
    if "nightly" not in toolchains:
        sys.exit("Fuzzing needs a nightly compiler. Install it: rustup toolchain install nightly")
    if not shutil.which("cargo-fuzz"):
        print("Installing cargo-fuzz, which takes some minutes", flush=True)
        subprocess.run(["cargo", "install", "--locked", "cargo-fuzz"], check=True)


def targets():
    return sorted(path.stem for path in (FUZZ / "fuzz_targets").glob("*.rs"))


def read_figures(output):
    """libFuzzer's final figures: runs, and the coverage (edges, features, inputs) of its last line."""
    runs = re.findall(r"^stat::number_of_executed_units:\s+(\d+)", output, re.M)
    lines = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)/", output)
    edges, features, inputs = (int(number) for number in lines[-1]) if lines else (0, 0, 0)
    return {"runs": int(runs[-1]) if runs else 0, "edges": edges, "features": features, "inputs": inputs}


def fuzz(target, seconds):
    """The figures of a run, and the files of its crashes."""
    corpus, found, artifacts = FUZZ / "corpus" / target, FUZZ / "found" / target, FUZZ / "artifacts" / target
    found.mkdir(parents=True, exist_ok=True)
    known = set(artifacts.glob("*"))
    run = subprocess.Popen(
        [*CARGO_FUZZ, "run", target, found, corpus, "--", f"-max_total_time={seconds}", "-print_final_stats=1",
         f"-max_len={INPUT_BYTES_MAX}", f"-timeout={INPUT_SECONDS_MAX}"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )
    output = []
    for line in run.stdout:
        output.append(line)
        if not re.match(r"#\d+\s+(NEW|REDUCE|RELOAD)", line):
            print(line, end="", flush=True)
    run.wait()
    crashes = sorted(set(artifacts.glob("*")) - known)
    if run.returncode and not crashes:
        sys.exit(f"{target}: could not run (exit code {run.returncode})")
    return read_figures("".join(output)), crashes


def cut_down(target):
    """Keeps only the found inputs that add coverage to the committed corpus."""
    corpus, found = FUZZ / "corpus" / target, FUZZ / "found" / target
    merged = FUZZ / "found" / f"{target}.merged"
    shutil.rmtree(merged, ignore_errors=True)
    shutil.copytree(corpus, merged)
    subprocess.run(
        [*CARGO_FUZZ, "run", target, merged, found, "--", "-merge=1", f"-max_len={INPUT_BYTES_MAX}"],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True,
    )
    committed = {path.name for path in corpus.iterdir()}
    shutil.rmtree(found)
    found.mkdir()
    for path in merged.iterdir():
        if path.name not in committed:
            path.rename(found / path.name)
    shutil.rmtree(merged)


def keep_crash(target, crash):
    """The crash as a regression: minimised if that works, whole otherwise."""
    kept = FUZZ / "corpus" / target / f"found-{crash.name}"
    shutil.copy(crash, kept)
    minimised = FUZZ / "artifacts" / target / f"minimised-{crash.name}"
    subprocess.run(
        [*CARGO_FUZZ, "tmin", target, crash, "--", f"-exact_artifact_path={minimised}"],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
    )
    if minimised.exists():
        shutil.move(minimised, kept)
    return kept


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--target", action="append", choices=targets(), help="default: all")
    arguments = parser.parse_args()
    prepare()
    lines, regressions = [], []
    for target in arguments.target or targets():
        print(f"\n--- {target}, {arguments.minutes:g} minutes", flush=True)
        figures, crashes = fuzz(target, int(60 * arguments.minutes))
        cut_down(target)
        regressions += [keep_crash(target, crash) for crash in crashes]
        lines.append(f"{target:<14} {figures['runs']:>12,} runs  {figures['edges']:>6,} edges  "
                     f"{figures['features']:>7,} features  {figures['inputs']:>5,} inputs  {len(crashes)} crashes")
    print("\n" + "\n".join(lines))
    for regression in regressions:
        print(f"crash: {regression.relative_to(ROOT)}: name it by what it shows, fix the cause, commit both")
    return 1 if regressions else 0


if __name__ == "__main__":
    sys.exit(main())
