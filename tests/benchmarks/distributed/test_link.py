"""Two hosts in network namespaces: bytes on the link are counted, the model's are as said, nothing is left."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from benchmarks.distributed import hosts, link


def test_where_namespaces_are_not_allowed_it_says_so(monkeypatch, capsys):
    refused = SimpleNamespace(returncode=1, stderr="mkdir /run/netns failed: Permission denied\n", stdout="")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: refused)
    monkeypatch.setattr(hosts.shutil, "which", lambda name: f"/sbin/{name}")
    assert link.main(["true"]) == link.UNABLE
    assert "Expected to make network namespaces. Got: mkdir /run/netns failed" in capsys.readouterr().err
    monkeypatch.setattr(hosts.shutil, "which", lambda _: None)
    assert hosts.unable() == "no ip and no tc: install iproute2"


def test_the_models_bytes_are_weights_and_gradients_in_each_update():
    printed = json.dumps({"network": "lenet", "outputs": None, "updates": 90})
    weights = 61_706  # LeNet's, for images of one channel
    found = link.expected(printed, seen=round(1.05 * 90 * 2 * 4 * weights))
    assert found == {"updates": 90, "model": 90 * 2 * 4 * weights, "seen_over_model": 1.05}
    assert link.expected("no JSON", seen=10) == {}


REDUCE = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
ones = torch.ones(250_000)
dist.all_reduce(ones)
print(dist.get_rank(), ones.sum().item())
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_torchrun_has_a_rank_on_each_host_and_they_talk_over_the_link(tmp_path):
    if why := hosts.unable():
        pytest.skip(f"no network namespaces: {why}")
    program = tmp_path / "reduce.py"
    program.write_text(REDUCE)
    with hosts.hosts(2, "200mbit", ray=False) as pair:
        printed = link.torchrun(pair, [str(program)])
        sent, received = pair.bytes()
    assert printed == "0 500000.0\n"
    # A million bytes each way, their headers, and what the ranks say to find each other.
    assert all(1_000_000 < seen < 1_150_000 for seen in (sent, received))


SEND = f"""
import socket
with socket.socket(type=socket.SOCK_DGRAM) as sender:
    for _ in range(20):
        sender.sendto(bytes(1000), ("{hosts.address(1)}", 9))
"""


def test_bytes_on_the_link_are_counted_and_limited():
    if why := hosts.unable():
        pytest.skip(f"no network namespaces: {why}")
    pair = hosts.Hosts(2, "8mbit")
    try:
        pair.make()
        before = pair.bytes()
        pair.run(0, [sys.executable, "-c", SEND])
        sent = pair.bytes()[0] - before[0]
    finally:
        pair.remove()
    # 1,000 bytes, and 8 of UDP, 20 of IP and 14 of Ethernet; a few of ARP beside them.
    assert 20 * 1042 <= sent < 20 * 1042 + 500
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert not any(name in listed for name in pair.names)
