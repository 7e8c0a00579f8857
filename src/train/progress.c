/* SPDX-License-Identifier: Apache-2.0 */
#include "train/progress.h"

#include <pthread.h>
#include <string.h>

#include "base/knob.h"
#include "train/driver.h"
#include "train/run.h"
#include "train/trainer.h"
#include "view/progress.h"

#define drv      manta__drv
#define S        1000000000ll
#define BLOCK_NS (S / 10)
#define HTML_NS  (S / 2)
#define TEXT_MAX (1u << 20)

static bool is_block(const manta_run *r)
{
  return !r->progress.html && r->moves && r->screen.to.kind[1] == MANTA_DISPLAY_TERMINAL;
}

void manta__progress_init(manta_run *r, const manta_run_config *rc)
{
  struct manta__progress *p = &r->progress;
  int64_t wanted = 0;
  if (rc->verbose == 0 && !r->trainer->quiet)
    manta__knob_whole(MANTA__KNOB_VERBOSE, &wanted);
  *p = (struct manta__progress){.verbose = rc->verbose > 0 ? rc->verbose : (int)wanted,
                                .html = rc->html && rc->display};
  if (r->exec)
    p->verbose = 0;
  manta__stats_init(&p->stats);
  p->due_ns = manta__now() + (p->html || is_block(r) ? 0 : S);
}

void manta__progress_fini(manta_run *r)
{
  manta__stats_fini(&r->progress.stats);
  r->progress.verbose = 0;
}

void manta__progress_resume(manta_run *r)
{
  struct manta__stats *s = &r->progress.stats;
  if (r->progress.verbose && manta__stats_read(s, r->rundir, NULL) < 0)
    manta__stats_fini(s);
}

void manta__progress_row(manta_run *r, const struct manta__ident *id, int64_t wall_ns,
                         const void *payload, size_t len)
{
  if (r->progress.verbose)
    manta__stats_row(&r->progress.stats, id, wall_ns, payload, len);
}

void manta__progress_event(manta_run *r, enum manta__event kind, const struct manta__ident *id,
                           const manta_value *v)
{
  if (r->progress.verbose)
    manta__stats_event(&r->progress.stats, kind, id, manta__wall(), v);
}

// --- showing -------------------------------------------------------------------------------------

int64_t manta__progress_next(const manta_run *r)
{
  return r->progress.verbose && !r->progress.told ? r->progress.due_ns : MANTA__NEVER;
}

bool manta__progress_due(const manta_run *r)
{
  return r->progress.verbose && !r->progress.told && !r->over && manta__now() >= r->progress.due_ns;
}

static struct manta__look look_at(const manta_run *r)
{
  const char *slash = r->dir ? strrchr(r->dir, '/') : NULL;
  return (struct manta__look){.name = slash ? slash + 1 : "run",
                              .verbose = r->progress.verbose,
                              .colours = r->screen.colour[1] && !r->progress.html,
                              .rows = is_block(r) ? manta__screen_rows() - 3 : 0,
                              .columns = is_block(r) ? manta__screen_columns() - 1 : 0,
                              .now_ns = manta__wall()};
}

// A log that nobody looks at line by line: every second in the first minute, then every ten, then
// every minute. Without new rows nothing is said.
static int64_t line_every(const manta_run *r)
{
  int64_t age = manta__now() - r->timeline.began;
  return age < 60 * S ? S : age < 600 * S ? 10 * S : 60 * S;
}

static bool say_line(manta_run *r, manta__buf *out, const struct manta__look *look)
{
  struct manta__progress *p = &r->progress;
  bool news = p->stats.rows != p->rows;
  p->rows = p->stats.rows;
  if (news)
    manta__progress_line(out, &p->stats, look);
  return news;
}

static void say(manta_run *r, const char *text)
{
  if (r->moves)
    manta__screen_lift(&r->screen);
  manta__screen_say(&r->screen, "manta: ", text);
}

void manta__progress_show(manta_run *r)
{
  struct manta__progress *p = &r->progress;
  struct manta__look look = look_at(r);
  manta__buf out;
  bool block = is_block(r), line = false;
  manta__buf_init(&out, TEXT_MAX);
  if (p->html)
    manta__progress_html(&out, &p->stats, &look);
  else if (block)
    manta__progress_block(&out, &p->stats, &look);
  else
    line = say_line(r, &out, &look);
  p->due_ns = manta__now() + (block ? BLOCK_NS : p->html ? HTML_NS : line_every(r));
  pthread_mutex_unlock(&drv.lock);
  manta__buf_terminate(&out);
  if (p->html)
    r->screen.to.write(r->screen.to.ctx, MANTA_DISPLAY_HTML, (const char *)out.data, out.len);
  else if (block)
    manta__screen_block(&r->screen, (const char *)out.data, out.len);
  else if (line)
    say(r, (const char *)out.data);
  if (r->moves)
    manta__screen_lay(&r->screen);
  manta__buf_fini(&out);
  pthread_mutex_lock(&drv.lock);
}

void manta__progress_end(manta_run *r)
{
  struct manta__progress *p = &r->progress;
  if (!p->verbose || p->told)
    return;
  p->told = true;
  manta__buf out;
  manta__buf_init(&out, TEXT_MAX);
  manta__screen_block(&r->screen, NULL, 0);
  manta__screen_lift(&r->screen);
  pthread_mutex_lock(&drv.lock);
  struct manta__look look = look_at(r);
  look.columns = 0; // it stays: the whole name
  if (p->html)
    manta__progress_html(&out, &p->stats, &look);
  else
    manta__progress_summary(&out, &p->stats, &look);
  pthread_mutex_unlock(&drv.lock);
  r->screen.to.write(r->screen.to.ctx, p->html ? MANTA_DISPLAY_HTML : 2, (const char *)out.data,
                     out.len);
  manta__buf_fini(&out);
}
