# SPDX-License-Identifier: Apache-2.0
"""The dashboard's server, asked over sockets: what it shows, and to whom."""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from served import Dashboard, Pretence, main, make_bed, pretend, pretend_trials  # noqa: E402
from served import wait_for  # noqa: E402

BED = make_bed()
DOCS = Path(__file__).resolve().parents[2] / "docs"


def runs_dir(name: str) -> Path:
    runs = BED.root / name
    runs.mkdir()
    return runs


def test_nothing_without_the_token() -> None:
    runs = runs_dir("token")
    d = Dashboard(BED, runs)
    assert d.host == "127.0.0.1" and len(d.token) == 32
    for path in ("/", "/api/runs", "/api/events", "/api/log?run=x&rank=0", "/metrics", "/none"):
        for wrong in ("", "0" * 32, d.token[:-1], d.token + "0"):
            answer = d.ask(path, token=wrong)
            assert answer.status == 401, (path, wrong, answer.status)
            assert str(runs) not in answer.read().decode()
        assert d.code(f"{path}{'&' if '?' in path else '?'}token=wrong", token="") == 401
    assert d.code(f"/?token={d.token}", token="") == 200
    assert d.code("/") == 200 and d.code("/none") == 404
    d.stop()


def test_hosts_origins_and_methods() -> None:
    d = Dashboard(BED, runs_dir("hosts"), "--allow-host", "runs.example")
    own = f"127.0.0.1:{d.port}"
    assert d.code("/api/runs", Host=own) == 200
    assert d.code("/api/runs", Host=f"localhost:{d.port}") == 200
    assert d.code("/api/runs", Host="runs.example") == 200
    assert d.code("/api/runs", Host="rebound.example") == 403
    assert d.code("/api/runs", Host=f"{own}.evil.example") == 403
    assert d.code("/api/runs", Origin=f"http://{own}") == 200
    assert d.code("/api/runs", Origin="http://evil.example") == 403
    assert d.code("/api/runs", Origin=f"http://127.0.0.1:{d.port + 1}") == 403
    assert d.code("/api/runs", Origin="null") == 403
    assert d.code("/api/runs", Sec_Fetch_Site="cross-site") == 403
    assert d.code("/", Sec_Fetch_Site="cross-site") == 200  # a link in another page
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        answer = d.ask("/api/runs", method)
        assert answer.status == 405 and answer.getheader("Allow") == "GET, HEAD", method
    assert d.code("/api/runs", "HEAD") == 200
    d.stop()


def test_headers() -> None:
    d = Dashboard(BED, runs_dir("headers"))
    for path in ("/", "/api/runs", "/none"):
        answer = d.ask(path)
        policy = answer.getheader("Content-Security-Policy") or ""
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy and "connect-src 'self'" in policy
        assert answer.getheader("X-Content-Type-Options") == "nosniff"
        assert answer.getheader("Referrer-Policy") == "no-referrer"
        assert answer.getheader("Cache-Control") == "no-store"
        assert answer.getheader("Access-Control-Allow-Origin") is None
    page = d.ask("/").read().decode()
    assert "<title>manta</title>" in page
    assert not re.search(r"(src|href)=.https?:", page)
    d.stop()


def raw(d: Dashboard, text: bytes) -> bytes:
    got = b""
    with socket.create_connection(("127.0.0.1", d.port), timeout=30) as s:
        try:
            s.sendall(text)
            s.shutdown(socket.SHUT_WR)
            while piece := s.recv(65536):
                got += piece
        except OSError as e:  # it may close before it has read all
            assert not isinstance(e, TimeoutError), text[:60]
    return got


def test_requests_that_are_none() -> None:
    """Whatever arrives, the next request is answered."""
    d = Dashboard(BED, runs_dir("raw"))
    bearer = f"Authorization: Bearer {d.token}\r\n".encode()
    host = f"Host: 127.0.0.1:{d.port}\r\n".encode()
    for text in (b"", b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00" * 40,
                 b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/9.9\r\n" + host + b"\r\n",
                 b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n" + host + b"\r\n",
                 b"GET / HTTP/1.1\r\n" + host + b"X: " + b"y" * 100000 + b"\r\n\r\n",
                 b"GET /?token=%00%ff%zz&token HTTP/1.1\r\n" + host + b"\r\n",
                 b"GET /../../etc/passwd HTTP/1.1\r\n" + host + b"\r\n"):
        got = raw(d, text)
        assert not got or re.match(rb"HTTP/1\.[01] (4\d\d|505) ", got), (text[:60], got[:200])
    for query in (b"", b"?run=", b"?run=..&rank=0", b"?run=x&rank=-1", b"?run=x&rank=99999999999",
                  b"?run=../../etc&rank=0", b"?run=%2e%2e&rank=0", b"?run=x&rank=0x1"):
        got = raw(d, b"GET /api/log" + query + b" HTTP/1.1\r\n" + host + bearer +
                  b"Connection: close\r\n\r\n")
        assert re.match(rb"HTTP/1\.1 40[04] ", got), (query, got[:200])
    got = raw(d, b"GET /api/runs HTTP/1.1\r\n" + host + host + bearer + b"\r\n")
    assert got.startswith(b"HTTP/1.1 ")
    assert d.code("/api/runs") == 200
    d.stop()


def test_connections_that_say_nothing() -> None:
    """As many as there may be: they give way to those who have the token."""
    d = Dashboard(BED, runs_dir("silent"))
    idle = [socket.create_connection((d.host, d.port)) for _ in range(64)]
    for s in idle:
        s.sendall(b"GET / HTTP/1.1\r\n")
        s.settimeout(30)
    assert not any(s.recv(1) for s in idle)  # each was closed
    assert d.code("/api/runs") == 200
    for s in idle:
        s.close()
    d.stop()


def test_the_list_of_runs() -> None:
    runs = runs_dir("list")
    pretend(runs, "good", "--rows", 120, "--ranks", 3, "--loss-at", 110)
    pretend(runs, "bad", "--rows", 30, "--fail")
    (runs / "other").mkdir()
    (runs / "link").symlink_to(runs / "good")
    d = Dashboard(BED, runs)
    found = d.whole(2)
    good, bad = found["good"], found["bad"]
    assert (good["state"], bad["state"]) == ("finished", "failed")
    assert good["iteration"] == 120 and good["attempts"] == 2 and good["lost"] == 1
    assert good["best"]["metric"] == "loss" and 0 < good["best"]["value"] < 1
    assert "no labels" in bad["message"] and good["bytes"] >= 4096
    assert set(good["last"]) == {"loss", "accuracy", "lr"}
    d.stop()
    one = Dashboard(BED, runs / "bad")  # the directory of one run
    assert set(one.whole(1)) == {"bad"}
    one.stop()


def test_a_run_as_it_grows() -> None:
    runs = runs_dir("live")
    p = Pretence(runs, "live", "--rows", 60, "--ranks", 2)
    d = Dashboard(BED, runs)
    wait_for("the run", lambda: "live" in d.runs())
    events = d.events("/api/events?run=live")
    for first in events:
        if first["whole"]:
            break
    assert first["anew"] or first["iteration"] == 60
    assert first["state"] == "running" and len(first["workers"]) == 2
    assert first["workers"][1]["host"] == "node-1" and first["workers"][1]["rss"] > 0
    p.say("")
    event = next(e for e in events if e["iteration"] == 61)
    loss = next(s for s in event["series"] if s["name"] == "loss" and s["rank"] == 0)
    assert loss["from"] == 59 and len(loss["mean"]) == 2 and not event["anew"], loss
    p.say("lose")
    event = next(e for e in events if e["lost"] == 1)
    assert event["iteration"] == 50
    assert {m["kind"] for m in event["marks"]} == {"lost", "attempt"}
    assert event["attempts"] == 2
    p.say("finish")
    p.end()
    next(e for e in events if e["state"] == "finished")
    d.stop()


def test_long_runs_are_drawn_from_few_points() -> None:
    runs = runs_dir("long")
    pretend(runs, "long", "--rows", 30000, "--ranks", 1, "--loss-at", 25001)
    d = Dashboard(BED, runs)
    d.whole(1)
    event = next(d.events("/api/events?run=long"))
    loss = next(s for s in event["series"] if s["name"] == "loss")
    assert loss["points"] == 30000, loss["points"]  # void rows do not count
    assert len(loss["mean"]) <= 512 and loss["w"] == 64
    assert all(low <= mid <= high for low, mid, high in zip(loss["min"], loss["mean"], loss["max"]))
    assert loss["high"] == max(loss["max"])
    d.stop()


def test_several_runs_at_once() -> None:
    runs = runs_dir("several")
    for i in range(9):
        pretend(runs, f"r{i}", "--rows", 5, "--ranks", 1, "--seed", i)
    d = Dashboard(BED, runs)
    d.whole(9)
    events = d.events("/api/events?run=r1&run=r3")
    assert {next(events)["run"], next(events)["run"]} == {"r1", "r3"}
    assert d.code("/api/events?" + "&".join(f"run=r{i}" for i in range(9))) == 404
    assert d.code("/api/events?run=r1&run=nobody") == 404
    d.stop()


def test_an_experiment() -> None:
    runs = runs_dir("tune")
    pretend_trials(runs, "tuned", 20)
    d = Dashboard(BED, runs)
    listed = d.whole(1)["tuned"]
    assert listed["experiment"] and listed["state"] == "finished" and listed["total"] == 20
    assert sum(listed["trial_states"].values()) == 20 and listed["trial_states"]["failed"] == 2
    event = next(d.events("/api/events?run=tuned"))
    assert event["head"]["searcher"] == "tpe" and len(event["trials"]) == 20
    best = min(t["best"] for t in event["trials"])
    assert event["best"]["value"] == event["steps"][-1]["value"] == best
    values = [s["value"] for s in event["steps"]]
    assert values == sorted(values, reverse=True)
    first = event["trials"][0]
    assert first["config"]["optimizer"]["name"] in ("adam", "sgd", "lion")
    assert len(first["mean"]) == first["iteration"]
    text = d.ask("/metrics").read().decode()
    assert 'manta_experiment_trials{run="tuned",state="failed"} 2' in text, text
    assert "manta_run_iteration{" not in text
    d.stop()


def test_logs() -> None:
    runs = runs_dir("logs")
    pretend(runs, "r", "--rows", 5)
    (runs / "secret").write_text("secret\n")
    logs = runs / "r" / "logs"
    (logs / "rank-1.log").symlink_to(runs / "secret")
    os.mkfifo(logs / "rank-2.log")
    (logs / "rank-3.log").write_text("".join(f"line {i}\n" for i in range(20000)))
    d = Dashboard(BED, runs)
    d.whole(1)
    assert b"epoch 1 begins\n" in d.ask("/api/log?run=r&rank=0").read()
    for rank in (1, 2, 4):
        answer = d.ask(f"/api/log?run=r&rank={rank}")
        assert answer.status == 200 and answer.read() == b"", rank  # nothing that was printed
    assert d.code("/api/log?run=q&rank=0") == 404
    tail = d.ask("/api/log?run=r&rank=3").read()
    assert len(tail) <= 65536 and tail.startswith(b"line ") and tail.endswith(b"line 19999\n")
    d.stop()


def test_metrics_of_a_real_run() -> None:
    """Workers that really run: what they use is sampled."""
    p = BED.counting(1000000, 50, 20000)
    d = Dashboard(BED, BED.results)
    name = BED.runs()[-1].name

    def sampled() -> str:
        text = d.ask("/metrics").read().decode()
        want = [f'manta_worker_resident_memory_bytes{{run="{name}",rank="{r}"}}' for r in (0, 1)]
        return text if all(w in text for w in want) and "manta_worker_cpus{" in text else ""
    text = wait_for("samples", sampled)
    assert 'manta_runs{state="running"} 1' in text
    rss = float(re.search(r"_memory_bytes\{.*?\} (\S+)", text)[1])  # type: ignore[index]
    assert 1e5 < rss < 1e10
    step = float(re.search(r"_step_seconds\{.*?\} (\S+)", text)[1])  # type: ignore[index]
    assert 0.01 < step < 10
    form = r'[a-z_]+(\{\w+="[^"]*"(,\w+="[^"]*")*\})? \S+'
    assert all(line[0] == "#" or re.fullmatch(form, line) for line in text.splitlines()), text
    worker = next(d.events(f"/api/events?run={name}"))["workers"][0]
    assert worker["host"] == socket.gethostname() and worker["pid"] > 1
    assert BED.manta("kill", name).code == 0
    BED.finish(p)
    d.stop()


def certificate() -> tuple[Path, Path]:
    cert, key = BED.root / "cert.pem", BED.root / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-keyout", key, "-out", cert], check=True, capture_output=True, timeout=60)
    key.chmod(0o600)
    return cert, key


def test_beyond_this_host() -> None:
    runs = runs_dir("beyond")
    done = BED.manta("dashboard", "--bind", "0.0.0.0", runs)
    assert done.code == 2 and "--cert" in done.err and "--insecure" in done.err, done
    done = BED.manta("dashboard", "--bind", "example.org", runs)
    assert done.code == 2 and "no IP address" in done.err, done
    cert, key = certificate()
    assert BED.manta("dashboard", "--cert", cert, runs).code == 2
    d = Dashboard(BED, runs, "--bind", "0.0.0.0", "--cert", cert, "--key", key)
    assert d.scheme == "https"
    trust = ssl.create_default_context(cafile=str(cert))
    trust.check_hostname = False
    with socket.create_connection(("127.0.0.1", d.port), timeout=30) as plain, \
            trust.wrap_socket(plain) as s:
        s.sendall(f"GET /api/runs?token={d.token} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        assert re.match(rb"HTTP/1\.[01] 200 ", s.recv(4096))
        assert s.version() in ("TLSv1.2", "TLSv1.3")
    d.stop()
    key.chmod(0o644)
    done = BED.manta("dashboard", "--cert", cert, "--key", key, runs)
    assert done.code == 2 and "chmod 600" in done.err, done
    insecure = Dashboard(BED, runs, "--bind", "0.0.0.0", "--insecure")
    assert insecure.code("/api/runs") == 200 and insecure.code("/api/runs", token="") == 401
    insecure.stop()


def test_a_token_that_stays() -> None:
    runs, file = runs_dir("kept"), BED.root / "token.txt"
    file.write_text("0123456789abcdef0123\n")
    file.chmod(0o644)
    assert BED.manta("dashboard", "--token-file", file, runs).code == 2
    file.chmod(0o600)
    d = Dashboard(BED, runs, "--token-file", file)
    assert d.token == "0123456789abcdef0123" and d.code("/metrics") == 200
    d.stop()


def test_a_directory_that_is_removed_and_made_again() -> None:
    runs = BED.root / "again"
    pretend(runs, "old", "--rows", 3)
    (runs / "empty").mkdir()
    (runs / "empty" / "run.log").touch()
    d = Dashboard(BED, runs)
    assert {n: r["state"] for n, r in d.whole(2).items()} == {
        "old": "finished", "empty": "interrupted"}
    shutil.rmtree(runs)
    wait_for("no runs", lambda: not d.runs())
    pretend(runs, "new", "--rows", 3)
    assert list(d.whole(1)) == ["new"]
    d.stop()


def test_the_pictures_of_the_guide_have_the_words_of_the_page() -> None:
    """They are drawn by hand, as text: what the page does not say any more is found here."""
    d = Dashboard(BED, runs_dir("pictures"))
    page = d.ask("/").read().decode()
    for picture in ("run", "experiment"):
        text = (DOCS / f"dashboard-{picture}.svg").read_text()
        words = re.findall(r'class="word[^"]*"[^>]*>([^<]+)<', text)
        assert len(words) > 5 and not [w for w in words if f"'{w}'" not in page], words
    d.stop()


def test_no_such_directory() -> None:
    done = BED.manta("dashboard", BED.root / "none")
    assert done.code == 3 and "none" in done.err, done


main(globals())
