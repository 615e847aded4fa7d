"""What scikit-learn says of a regression that knows nothing but the mean, and of classes that are to weigh the same.

Writes a table and the scores of its held-out rows, which are every fifth; `python values.py FOLDER`. The fixtures of the
command line's tests were made by it, with scikit-learn 1.9.1.
"""

import csv
import json
import pathlib
import sys

import numpy as np
from sklearn.dummy import DummyRegressor
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_class_weight

ROWS = 60
SHARE = 0.2


def held_out(rows):
    """Which rows `hold_out` keeps for evaluation: spread evenly, none at random."""
    held = [int(np.floor(row * SHARE + 0.5)) for row in range(rows + 1)]
    return np.array([held[row + 1] > held[row] for row in range(rows)])


def scores(train, test, prediction):
    return {
        "mae": mean_absolute_error(test, prediction),
        "rmse": root_mean_squared_error(test, prediction),
        "r2": r2_score(test, prediction),
        "mean": StandardScaler().fit(train).mean_.tolist(),
        "std": StandardScaler().fit(train).scale_.tolist(),
    }


def main(folder):
    draw = np.random.default_rng(5)
    features = draw.normal(size=(ROWS, 2)).round(3)
    price = (250 + 40 * features[:, 0] + draw.normal(size=ROWS) * 5).round(2)
    area = (1e4 + 0.5 * features[:, 1] + draw.normal(size=ROWS) * 0.1).round(3)
    kind = np.repeat(["cat", "dog", "owl"], [36, 18, 6])
    with open(folder / "values.csv", "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["a", "b", "price", "area", "kind"])
        table.writerows(zip(*features.T, price, area, kind))
    # As f32 has them, which is what a run reads.
    targets = np.stack([price, area], axis=1).astype(np.float32).astype(np.float64)
    held = held_out(ROWS)
    found = {}
    for name, columns in [("price", [0]), ("price,area", [0, 1])]:
        train, test = targets[~held][:, columns], targets[held][:, columns]
        mean = DummyRegressor(strategy="mean").fit(np.zeros((len(train), 1)), train)
        prediction = np.reshape(mean.predict(np.zeros((len(test), 1))), test.shape)
        found[name] = scores(train, test, prediction)
    weights = compute_class_weight("balanced", classes=np.unique(kind), y=kind)
    found["class_weights"] = dict(zip(np.unique(kind).tolist(), weights.tolist()))
    (folder / "values.json").write_text(json.dumps(found, indent=2) + "\n")


main(pathlib.Path(sys.argv[1]))
