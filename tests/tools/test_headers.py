#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every public header compiles on its own, as C11 and as C++17, with all warnings, and so does a
program that uses its initialisers and macros."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Callable

from tap import ROOT, Skip, main

WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
LANGUAGES = {"c11": ["gcc", "-std=c11", "-xc"], "cxx17": ["g++", "-std=c++17", "-xc++"]}

# A field that is added to a config and not to its initialiser is a warning here.
USES = """
#include <manta/manta.h>
static manta_status train(manta_session *s, manta_value *result, manta_error *err)
{
  (void)s, (void)err;
  MANTA_TRY(manta_value_set_int(result, 1));
  return MANTA_OK;
}
MANTA_TRAIN("t", train)
static const manta_trainer_config constant = MANTA_TRAINER_CONFIG_INIT;
int main(int argc, char **argv)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer_config cfg = MANTA_TRAINER_CONFIG_INIT;
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  manta_data_config data = MANTA_DATA_CONFIG_INIT;
  manta_loader_config load = MANTA_LOADER_CONFIG_INIT;
  manta_trainer *t;
  manta_dataset *d;
  manta_loader *l;
  cfg.workers = 2;
  rc.keep_last = 1;
  data.skip_errors = true;
  if (manta_init(&argc, &argv) < 0 || manta_trainer_create(&t, &cfg, &err) < 0 ||
      manta_dataset_open(&d, NULL, 0, &data, &err) < 0 || manta_loader_open(&l, d, &load, &err) < 0)
    return (int)constant.size;
  return manta_trainer_run(t, train, &rc, NULL, &err) < 0;
}
"""
USES_C = USES + """
int used(manta_session *s, float *w);
int used(manta_session *s, float *w)
{
  manta_value row = MANTA_MAP(MANTA_KV_INT("i", 1), MANTA_KV_REAL("r", 0.5), MANTA_KV_BOOL("b", 1),
                              MANTA_KV_STR("s", "x"), MANTA_KV("v", manta_value_int(3)));
  manta_tensor t[] = {MANTA_VECTOR("w", MANTA_F32, w, 8)};
  manta_state state = {t, 1, &row};
  return manta_session_report(s, &row, NULL) < 0 || manta_session_save(s, &state, NULL) < 0;
}
"""


def compile_header(header: Path, compiler: list[str]) -> None:
    # twice: a header that is not guarded fails
    include = f"#include <manta/{header.name}>\n"
    compile_text(f"{include}{include}int manta_used;\n", compiler)


def compile_text(source: str, compiler: list[str]) -> None:
    if not shutil.which(compiler[0]):
        raise Skip(f"{compiler[0]} is not installed")
    done = subprocess.run([*compiler, *WARNINGS, "-fsyntax-only", f"-I{ROOT / 'include'}", "-"],
                          input=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_uses_in_c() -> None:
    for compiler in ("gcc", "clang"):
        for std in ("c11", "gnu17"):
            compile_text(USES_C, [compiler, f"-std={std}", "-xc"])


def test_uses_in_cxx() -> None:
    for compiler in ("g++", "clang++"):
        for std in ("c++11", "c++17", "c++20"):
            compile_text(USES, [compiler, f"-std={std}", "-xc++"])


def make_test(header: Path, compiler: list[str]) -> Callable[[], None]:
    return lambda: compile_header(header, compiler)


for found in sorted((ROOT / "include" / "manta").glob("*.h")):
    for language, command in LANGUAGES.items():
        globals()[f"test_{found.stem}_as_{language}"] = make_test(found, command)

main(globals())
