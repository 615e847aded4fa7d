"""Event files as TensorBoard reads them.

    events.py SAMPLES

The event accumulator has to give every scalar as it was written, without what a resumed run takes back; and each of
TensorBoard's tabs has to list what is for it.
"""

import logging

from tensorboard import context
from tensorboard.backend.event_processing import data_provider, event_accumulator, plugin_event_multiplexer
from tensorboard.util import tensor_util

from samples import check_all, equal


def check(folder, expected):
    logs = str(folder / "logs")
    check_accumulator(logs, expected)
    check_tabs(logs, expected)


def check_accumulator(logs, expected):
    # 0 keeps all of them.
    events = event_accumulator.EventAccumulator(logs, size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    equal("scalars", events.Tags()["scalars"], ["loss"])
    loss = [[e.step, e.wall_time, e.value] for e in events.Scalars("loss")]
    equal("loss", loss, expected["loss"])
    [plan] = events.Tensors("plan")
    equal("text", tensor_util.make_ndarray(plan.tensor_proto).item().decode(), expected["plan"])
    [losses] = events.Tensors("losses")
    buckets = tensor_util.make_ndarray(losses.tensor_proto)
    equal("shape of a histogram", buckets.shape, (30, 3))
    equal("values in a histogram", buckets[:, 2].sum(), 1000)


def check_tabs(logs, expected):
    multiplexer = plugin_event_multiplexer.EventMultiplexer(tensor_size_guidance={"scalars": 0})
    multiplexer.AddRunsFromDirectory(logs)
    multiplexer.Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, logs)
    request = {"ctx": context.RequestContext(), "experiment_id": ""}
    scalars = provider.read_scalars(**request, plugin_name="scalars", downsample=len(expected["loss"]))
    loss = [[e.step, e.wall_time, e.value] for e in scalars["."]["loss"]]
    equal("the tab Scalars", loss, expected["loss"])
    for plugin, tag in [("text", "plan"), ("histograms", "losses")]:
        tensors = provider.list_tensors(**request, plugin_name=plugin)
        equal(f"the tab {plugin}", list(tensors["."]), [tag])


if __name__ == "__main__":
    # It tells of every resumed run.
    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    check_all(check)
