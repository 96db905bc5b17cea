"""The COMPAS example: R's random numbers, what it says without a file, and the table of a file of the same form."""

from __future__ import annotations

import csv
import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np

EXAMPLE = Path(__file__).parents[1] / "examples" / "compas.py"


def load():
    spec = importlib.util.spec_from_file_location("compas", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_samples_of_r():
    """``set.seed(0); runif(3)`` is 0.8966972 0.2655087 0.3721239 in R; the last row takes the place of a taken one."""
    left, taken = list(range(10)), []
    for uniform in (0.8966972, 0.2655087, 0.3721239):
        place = int(len(left) * uniform)
        taken.append(left[place])
        left[place] = left[-1]
        left.pop()
    assert np.flatnonzero(load().sample(10, 3)).tolist() == sorted(taken)


def test_it_explains_itself_without_the_file():
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "Download" in done.stdout


def test_the_table(tmp_path, capsys):
    rng, n = np.random.default_rng(0), 120
    path = tmp_path / "violent.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        columns = "days_b_screening_arrest is_recid c_charge_degree score_text race sex priors_count age v_decile_score"
        writer.writerow(columns.split())
        for k in range(n):
            race, sex = rng.choice(["African-American", "Caucasian", "Other"]), rng.choice(["Male", "Female"])
            priors, age = int(rng.integers(0, 20)), int(rng.integers(18, 60))
            score = int(np.clip(5 + 0.2 * priors - 0.1 * (age - 30) + rng.normal(), 1, 10))
            days = "" if k == 0 else int(rng.integers(-40, 40))
            writer.writerow([days, 0, rng.choice(["F", "M"]), "Low", race, sex, priors, age, score])
    load().main(path)
    said = capsys.readouterr().out
    assert said.count("least") == said.count("most") == 2
    assert "nan" not in said
