/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/options.c - the rows of a command become getopt's, so that options behave as everywhere else:
 * in any order, letters joined, long names cut short where that is clear, -- as the end.
 */
#include "cmd/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONG_BASE 256 /* getopt's value of row i is this plus i */

struct rows {
  struct option longs[MANTA__OPTIONS_MAX + 1];
  char letters[2 * MANTA__OPTIONS_MAX + 4];
  int count;
};

// "+" stops at the first operand; ":" tells an unknown option from a missing argument.
static void build_rows(struct rows *r, const struct manta__command *cmd)
{
  size_t at = 0;
  *r = (struct rows){0};
  if (cmd->rest)
    r->letters[at++] = '+';
  r->letters[at++] = ':';
  for (const struct manta__option *o = cmd->options; o && o->name; o++, r->count++) {
    r->longs[r->count] = (struct option){.name = o->name,
                                         .has_arg = o->arg ? required_argument : no_argument,
                                         .val = LONG_BASE + r->count};
    if (!o->letter)
      continue;
    r->letters[at++] = o->letter;
    if (o->arg)
      r->letters[at++] = ':';
  }
}

static int row_of_letter(const struct manta__command *cmd, int letter)
{
  for (int i = 0; cmd->options && cmd->options[i].name; i++)
    if (cmd->options[i].letter == letter)
      return i;
  return -1;
}

static manta_status bad_option(int c, char **argv, manta_error *err)
{
  const char *word = argv[optind > 0 ? optind - 1 : 0];
  char letter[3] = {'-', (char)optopt, 0};
  bool is_long = optopt == 0 || optopt >= LONG_BASE;
  if (c == ':')
    return manta_error_set(err, MANTA_EINVAL, "option %s needs an argument",
                           is_long ? word : letter);
  return manta_error_set(err, MANTA_EINVAL, "unknown option %s", is_long ? word : letter);
}

static manta_status check_operands(const struct manta__args *a, manta_error *err)
{
  const struct manta__command *c = a->cmd;
  if (a->count < c->min)
    return manta_error_set(err, MANTA_EINVAL, "manta %s needs %s", c->name, c->operands);
  if (c->max >= 0 && a->count > c->max)
    return manta_error_set(err, MANTA_EINVAL, "manta %s does not take \"%s\"", c->name,
                           a->operand[c->max]);
  return MANTA_OK;
}

// getopt begins behind argv[0], which is the command's name here.
manta_status manta__args_parse(struct manta__args *out, const struct manta__command *cmd, int argc,
                               char **argv, manta_error *err)
{
  struct rows r;
  int c;
  build_rows(&r, cmd);
  *out = (struct manta__args){.cmd = cmd};
  optind = 0; // begins anew
  opterr = 0;
  while ((c = getopt_long(argc, argv, r.letters, r.longs, NULL)) != -1) {
    int row = c >= LONG_BASE ? c - LONG_BASE : row_of_letter(cmd, c);
    if (c == '?' || c == ':' || row < 0)
      return bad_option(c, argv, err);
    out->given[row] = cmd->options[row].arg ? optarg : "";
  }
  out->operand = argv + optind;
  out->count = argc - optind;
  return check_operands(out, err);
}

const char *manta__args_get(const struct manta__args *a, const char *name)
{
  for (int i = 0; a->cmd->options && a->cmd->options[i].name; i++)
    if (!strcmp(a->cmd->options[i].name, name))
      return a->given[i];
  return NULL;
}

manta_status manta__args_int(int64_t *out, const char *text, const char *what, int64_t low,
                             int64_t high, manta_error *err)
{
  char *end;
  errno = 0;
  long long n = strtoll(text, &end, 10);
  if (errno || end == text || *end || n < low || n > high)
    return manta_error_set(err, MANTA_EINVAL, "%s must be a number from %lld to %lld, not \"%s\"",
                           what, (long long)low, (long long)high, text);
  *out = n;
  return MANTA_OK;
}
