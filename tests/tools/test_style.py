#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check-style finds what it is there to find, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tap import ROOT, load, main

style = load("tools/check-style")
SPDX = "/* SPDX-License-Identifier: Apache-2.0 */\n"


def wrongs(line: str, path: str = "src/wire/a.c") -> list[str]:
    """What is said of one line below the licence's."""
    found = list(style.check_file(path, f"{SPDX}{line}\n"))
    assert all(number == 2 for number, _ in found), found
    return [message for _, message in found]


def test_banned_functions() -> None:
    for name in ("strcpy", "strcat", "sprintf", "vsprintf", "strtok", "atoi", "atol", "gets"):
        assert wrongs(f"  x = {name}(a, b);"), name
        assert wrongs(f"  x = {name}(a, b);", "tests/wire/a.c"), name
    for fine in ("snprintf(a)", "fgets(a)", "my_strtok(a)", "strtok_r(a)"):
        assert not wrongs(f"  {fine};"), fine


def test_allocation_only_through_alloc() -> None:
    for name in ("malloc", "calloc", "realloc", "free", "strdup"):
        assert wrongs(f"  p = {name} (p);"), name
        assert not wrongs(f"  p = {name}(p);", "src/base/alloc.c"), name
        assert not wrongs(f"  p = {name}(p);", "tests/wire/a.c"), name
        assert not wrongs(f"  p = manta__{name}(p);"), name
    assert not wrongs("  b->free(b->ctx); b.free(b.ctx);")


def test_files_only_through_file() -> None:
    assert wrongs('  f = fopen(p, "w");')
    assert not wrongs('  f = fopen(p, "w");', "src/sys/file.c")


def test_signals_only_to_one_process() -> None:
    for path in ("src/wire/a.c", "tests/wire/a.c"):
        assert wrongs("  kill(pid, SIGSTOP);", path), path
        assert not wrongs("  manta__proc_signal(pid, SIGSTOP);", path), path
    assert not wrongs("  return kill(pid, sig);", "src/sys/proc.c")


def test_variables_only_through_the_table() -> None:
    for path in ("src/wire/a.c", "python/ext/a.c"):
        assert wrongs('  s = getenv("MANTA_LOG");', path), path
    for line in ('os.environ.get("MANTA_LOG")', "os.getenv('MANTA_LOG', 1)",
                 '"MANTA_LOG" in os.environ'):
        assert wrongs(line, "python/manta/a.py"), line
        assert not wrongs(line, "python/tests/a.py"), line
    for fine in ('os.environ["MANTA_BIN"] = x', 'os.environ.get("RANK")', '_manta.knob("MANTA_X")'):
        assert not wrongs(fine, "python/manta/a.py"), fine
    assert not wrongs('  s = getenv("PATH"); setenv("MANTA_BIN", s, 1);')
    assert not wrongs('  s = getenv("MANTA_BIN");', "tests/wire/a.c")


def test_comments_and_strings_are_no_code() -> None:
    assert not wrongs("  // never call malloc(n) here")
    assert not wrongs('  puts("free(x)"); /* strcpy(a, b) */')
    assert not style_of("/* a\n * free(x)\n */\nint c = '\"';\nchar *d = \"// \\\" \"; int x;\n")
    assert style_of("/* a */ free(x); /* b */\n")


def style_of(source: str) -> list[tuple[int, str]]:
    return list(style.check_file("src/wire/a.c", SPDX + source))


def test_notes_to_self() -> None:
    for word in ("TO" "DO", "FIX" "ME", "X" "XX"):
        assert wrongs(f"  // {word}: later"), word
        assert wrongs(f"{word}: later", "docs/a.md"), word
    assert not wrongs('  char t[] = "/tmp/manta-XXXXXX";')


def test_paths_of_one_machine() -> None:
    for top in ("home", "root", "work"):
        assert wrongs(f'  "/{top}/me/x"'), top
        assert wrongs(f"see /{top}/me/x", "docs/a.md"), top
        assert not wrongs(f'  "build/{top}/x"'), top


def test_layout() -> None:
    assert wrongs("\tint a;")
    assert wrongs("int a; ")
    assert wrongs("x" * 101)
    assert not wrongs("ä" * 100)


def test_typedefs() -> None:
    assert wrongs("typedef struct manta__ring *ring;")
    assert wrongs("typedef char * text;")
    assert not wrongs("typedef int (*manta_fn)(void *ctx);")
    assert not wrongs("typedef struct manta__ring manta__ring;")


def test_names_in_t() -> None:
    for line in ("typedef int ring_t;", "struct ring_t {", "} ring_t;", "enum ring_t {",
                 "typedef int (*ring_t)(void);", "#define ring_t"):
        assert wrongs(line), line
    for line in ("  size_t n;", "  uint8_t *p = (uint8_t *)q;", "typedef uint32_t manta_id;",
                 "struct pthread_mutex_t *m;", "  return (int64_t)n;"):
        assert not wrongs(line), line


def test_licence_line() -> None:
    for path in ("src/wire/a.c", "include/manta/a.h", "python/manta/a.py", "scripts/a"):
        assert list(style.check_file(path, "\n")), path
        assert not list(style.check_file(path, SPDX)), path
    assert list(style.check_file("somewhere/tool", "#!/bin/sh\n"))


def test_long_functions() -> None:
    for lines, fine in ((57, True), (58, False)):
        body = "static int f(int a)\n{\n" + "  a++;\n" * lines + "}\n"
        assert (not style_of(body)) == fine, lines
        assert (not style_of("static int f(int a,\n             int b)\n{\n"
                             + "  a++;\n" * (lines - 1) + "}\n")) == fine, lines
    assert not style_of("static int f(int a) // style: a table\n{\n" + "  a++;\n" * 99 + "}\n")
    assert not list(style.check_file("tests/wire/a.c", SPDX + body))


def test_functions_that_others_see() -> None:
    assert style_of("int f(int a)\n{\n}\n") and style_of("struct a *f(int a)\n{\n}\n")
    for fine in ("static int f(void)", "int manta__f(void)", "int main(int argc, char **argv)",
                 "_Noreturn static void f(void)", "void manta_f(\n    int a)"):
        assert not style_of(fine + "\n{\n}\n"), fine


def test_tags_are_unique() -> None:
    a, b = "struct a {\n  int x;\n};\n", "enum a { A };\n"
    assert len(list(style.check_tags({"src/x.h": a, "src/y.c": b}))) == 1
    assert not list(style.check_tags({"src/x.h": a, "src/y.c": "struct a *p;\nenum b { A };\n"}))
    assert not list(style.check_tags({"src/x.h": a, "src/y.c": "struct a { // style: its twin\n"}))


def test_heads() -> None:
    def head(source: str, *others: str) -> list[object]:
        return list(style.check_head("src/wire/a.c", source, set(others)))
    assert head(SPDX) and head("/* SPDX\n *\n * wire/b.c - what it was\n */\n")
    assert not head("/* SPDX\n *\n * wire/a.c - what it is\n */\n")
    assert not head(SPDX, "src/wire/a.h") and head(SPDX, "src/base/a.h")


def test_a_reason_lets_a_line_pass() -> None:
    assert not wrongs("  free(p); // style: given by getline")
    assert wrongs("  free(p); // style:")


def test_the_script_fails_on_a_bad_tree() -> None:
    with tempfile.TemporaryDirectory() as d:
        (Path(d) / "src" / "wire").mkdir(parents=True)
        (Path(d) / "src" / "wire" / "a.c").write_text(SPDX + "int a;\nchar *b = strcpy(c, d);\n")
        (Path(d) / "src" / "wire" / "a.h").write_text(SPDX)
        done = subprocess.run([sys.executable, str(ROOT / "tools" / "check-style"), d],
                              capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout.startswith("src/wire/a.c:3: strcpy "), done.stdout


main(globals())
