# SPDX-License-Identifier: Apache-2.0
#
# Completion of manta(1) for bash: commands, their options, and the names of runs and checkpoints in
# the directory of results.

# What can follow the word: an option with its argument, or an operand.
_manta_options() {
  case $1 in
  run) echo "-n -v --verbose --workers --logdir --pdb --ray" ;;
  resume) echo "-n --workers --trust" ;;
  logs) echo "--rank --all -f --follow -n --lines" ;;
  ps) echo "--json -v --verbose" ;;
  kill) echo "--now" ;;
  sink) echo "--kind" ;;
  mlflow) echo "--tracking-uri --experiment" ;;
  ckpt) echo "--json --to --dir" ;;
  tune) echo "--metric --mode --json" ;;
  bench) echo "-n --workers --op --type --from --to --factor --ms --private --pin --json" ;;
  agent) echo "--stdio" ;;
  plot) echo "-o --output --rank --x --log --title" ;;
  dashboard) echo "--port --bind --cert --key --insecure --token-file --allow-host" ;;
  prune) echo "--keep --older --unfinished --dry-run --json" ;;
  info) echo "--params --json" ;;
  status | ls | doctor) echo "--json" ;;
  esac
  echo "-h --help"
}

_manta_results() {
  printf '%s\n' "${MANTA_RESULTS:-$HOME/manta_results}"
}

_manta_runs() {
  local log
  echo latest
  for log in "$(_manta_results)"/*/run.log; do
    [[ -e $log ]] || continue
    log=${log%/run.log}
    printf '%s\n' "${log##*/}"
  done
}

_manta_experiments() {
  local log
  echo latest
  for log in "$(_manta_results)"/*/experiment/run.log; do
    [[ -e $log ]] || continue
    log=${log%/experiment/run.log}
    printf '%s\n' "${log##*/}"
  done
}

# Of a run that is named in full; others only by the words.
_manta_checkpoints() {
  local manifest
  printf '%s\n' newest best
  for manifest in "$(_manta_results)/$1"/checkpoints/*/manifest.json; do
    [[ -e $manifest ]] || continue
    manifest=${manifest%/manifest.json}
    printf '%s\n' "${manifest##*/}"
  done
}

_manta_words() {
  local IFS=$' \t\n'
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur")
}

_manta_files() {
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen "$@" -- "$cur")
}

# The operands between the command and the cursor.
_manta_operands() {
  local i
  operands=()
  for ((i = 2; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
    -n | --workers | --lines | --rank | --logdir | --pdb | -v | --verbose | --to | --dir | --op | --type | --from | --factor | --ms | --keep | --older | --tracking-uri | --experiment | --kind | -o | --output | --x | --title | --port | --bind | --cert | --key | --token-file | --allow-host | --metric | --mode) ((i++)) ;;
    -*) ;;
    *) operands+=("${COMP_WORDS[i]}") ;;
    esac
  done
}

_manta_operand() {
  case $1:${#operands[@]} in
  status:0) _manta_words "$(_manta_runs; _manta_experiments | tail -n +2)" ;;
  logs:0 | plot:0 | resume:0 | kill:0 | resize:0 | notice:0 | sink:0 | upload:0 | ckpt:1 | mlflow:1) _manta_words "$(_manta_runs)" ;;
  ls:0 | dashboard:0 | prune:0) _manta_files -d ;;
  mlflow:0) _manta_words "push" ;;
  bench:0) _manta_words "comm" ;;
  ckpt:0) _manta_words "ls show verify export" ;;
  tune:0) _manta_words "status best resume" ;;
  tune:1) _manta_words "$(_manta_experiments)" ;;
  ckpt:2) _manta_words "$(_manta_checkpoints "${operands[1]}")" ;;
  help:0) _manta_words "$commands" ;;
  esac
}

_manta() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
  local commands="run resume status logs ps ls plot dashboard prune kill resize notice ckpt sink mlflow upload download tune agent bench info doctor version help"
  local operands
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    _manta_words "$commands --help --version"
    return
  fi
  _manta_operands
  case $prev in
  --logdir | --dir) _manta_files -d && return ;;
  -o | --output | --cert | --key | --token-file) _manta_files -f && return ;;
  --port | --bind | --allow-host) return ;;
  --to) [[ $command == bench ]] || _manta_files -f && return ;;
  --op) _manta_words "allreduce reduce broadcast allgather reduce_scatter alltoall gather scatter sendrecv" && return ;;
  --type) _manta_words "f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64" && return ;;
  --kind) _manta_words "json csv tensorboard" && return ;;
  --mode) _manta_words "min max" && return ;;
  --from | --factor | --ms | --keep | --older | --metric) return ;;
  -n | --workers | --lines | --rank) [[ $command != run || ${#operands[@]} -eq 0 ]] && return ;;
  esac
  if [[ $command == run && ${#operands[@]} -gt 0 ]]; then
    _manta_files -f # the program's own arguments
  elif [[ $cur == -* ]]; then
    _manta_words "$(_manta_options "$command")"
  elif [[ $command == run ]]; then
    _manta_files -c
  else
    _manta_operand "$command"
  fi
}

complete -F _manta manta
