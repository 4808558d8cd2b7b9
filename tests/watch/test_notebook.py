"""Cells of a notebook: the list comes below those that have trained, as nobody sees what their process prints last."""

from importlib.util import find_spec

from prunedata.store.run_store import read_run
from tests.watch.watched import plain, rows_told, watched

STAND_IN = """
class InteractiveShell:
    def __init__(self):
        self.names, self.events, self.functions = {}, self, []

    def register(self, event, function):
        self.functions += [function] * (event == "post_run_cell")

    def run_cell(self, code):
        exec(code, self.names)
        for function in self.functions:
            function(None)

    @classmethod
    def instance(cls):
        return shell

def get_ipython():
    return shell

shell = InteractiveShell()
"""
"""What stands in for IPython where it is not installed."""
CELLS = """
import numpy as np, torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
random = np.random.default_rng(0)
labels = random.integers(0, 3, 100)
points = (random.normal(size=(100, 3)) + 4 * np.eye(3)[labels]).astype("float32")
labels[:5] = (labels[:5] + 1) % 3
loader = DataLoader(TensorDataset(torch.from_numpy(points), torch.from_numpy(labels)), batch_size=10, shuffle=True)
net = torch.nn.Linear(3, 3)
optimizer = torch.optim.Adam(net.parameters(), 0.05)

def train(loss_of, epochs):
    for _ in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss_of(net(inputs), targets).backward()
            optimizer.step()

def own_loss(outputs, targets):
    return (outputs.logsumexp(1) - outputs[torch.arange(len(targets)), targets]).mean()
###
train(own_loss, 1)
###
train(torch.nn.functional.cross_entropy, 3)
###
1 + 1
###
train(torch.nn.functional.cross_entropy, 2)
torch.save(net.weight, "weights.pt")
"""
NOTEBOOK = f"""
import sys
from IPython.core.interactiveshell import InteractiveShell

for at, cell in enumerate({CELLS.split("###")!r}):
    print("cell", at, file=sys.stderr)
    InteractiveShell.instance().run_cell(cell)
print("ended", file=sys.stderr)
"""


def test_the_list_comes_below_the_cell_that_has_trained(tmp_path):
    if find_spec("IPython") is None:
        for name in ("IPython/core/interactiveshell.py", "IPython/__init__.py", "IPython/core/__init__.py"):
            (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
            (tmp_path / name).write_text(
                "from IPython.core.interactiveshell import *" * name.endswith("on/__init__.py")
            )
        (tmp_path / "IPython/core/interactiveshell.py").write_text(STAND_IN)
    (tmp_path / "ipykernel_launcher.py").write_text(NOTEBOOK)
    path = {"IPYTHONDIR": str(tmp_path)}
    assert plain("ipykernel_launcher.py", cwd=tmp_path, **path).returncode == 0
    before = (tmp_path / "weights.pt").read_bytes()
    done = watched("ipykernel_launcher.py", cwd=tmp_path, JPY_SESSION_NAME="folder/mine.ipynb", **path)
    assert done.returncode == 0, done.stderr
    assert before == (tmp_path / "weights.pt").read_bytes()
    cells = done.stderr.partition("cell 0")[2].split("cell ")
    assert ["not watched" in cell for cell in cells] == [False, True, False, False, False]
    assert ["-> mine.zarr" in cell for cell in cells] == [False, False, True, False, True]
    assert set(rows_told(cells[-1])[:4]) <= set(range(5))
    assert not cells[-1].partition("ended\n")[2]
    assert (read_run(tmp_path / "mine.zarr").state.visits == 5).all()
