/* SPDX-License-Identifier: Apache-2.0 */
#include "view/goal.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static const struct word {
  const char *text;
  enum manta__goal goal;
} words[] = {
    {"loss", MANTA__GOAL_MIN},       {"error", MANTA__GOAL_MIN},  {"err", MANTA__GOAL_MIN},
    {"mse", MANTA__GOAL_MIN},        {"rmse", MANTA__GOAL_MIN},   {"mae", MANTA__GOAL_MIN},
    {"mape", MANTA__GOAL_MIN},       {"nll", MANTA__GOAL_MIN},    {"ppl", MANTA__GOAL_MIN},
    {"perplexity", MANTA__GOAL_MIN}, {"wer", MANTA__GOAL_MIN},    {"cer", MANTA__GOAL_MIN},
    {"fid", MANTA__GOAL_MIN},        {"cost", MANTA__GOAL_MIN},   {"crossentropy", MANTA__GOAL_MIN},
    {"logloss", MANTA__GOAL_MIN},    {"acc", MANTA__GOAL_MAX},    {"accuracy", MANTA__GOAL_MAX},
    {"auc", MANTA__GOAL_MAX},        {"auroc", MANTA__GOAL_MAX},  {"f1", MANTA__GOAL_MAX},
    {"precision", MANTA__GOAL_MAX},  {"recall", MANTA__GOAL_MAX}, {"iou", MANTA__GOAL_MAX},
    {"map", MANTA__GOAL_MAX},        {"r2", MANTA__GOAL_MAX},     {"bleu", MANTA__GOAL_MAX},
    {"rouge", MANTA__GOAL_MAX},      {"reward", MANTA__GOAL_MAX}, {"score", MANTA__GOAL_MAX},
    {"psnr", MANTA__GOAL_MAX},       {"ssim", MANTA__GOAL_MAX},   {"dice", MANTA__GOAL_MAX},
};

static enum manta__goal goal_of_word(const char *p, size_t n)
{
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strlen(words[i].text) == n && !strncasecmp(words[i].text, p, n))
      return words[i].goal;
  return MANTA__GOAL_NONE;
}

// The last word that says something counts: "reward_loss" is a loss.
enum manta__goal manta__goal_of(const char *name)
{
  enum manta__goal goal = MANTA__GOAL_NONE;
  for (const char *p = name; *p;) {
    size_t n = 0;
    while (isalnum((unsigned char)p[n]))
      n++;
    enum manta__goal g = n ? goal_of_word(p, n) : MANTA__GOAL_NONE;
    goal = g ? g : goal;
    p += n ? n : 1;
  }
  return goal;
}
