/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/tensorboard/eventfile.h - an event file of TensorBoard.
 *
 * Records in TFRecord's frame (length, checksum, bytes, checksum), each a message of event.proto.
 * Every call appends to the buffer of the file; manta__outfile_flush writes it.
 */
#ifndef MANTA_SINK_TENSORBOARD_EVENTFILE_H
#define MANTA_SINK_TENSORBOARD_EVENTFILE_H

#include <manta/value.h>

#include "sink/outfile.h"
#include "sink/tensorboard/event.pb-c.h"

/* When an event was, and to which step it belongs. */
struct manta__when {
  int64_t step;
  double wall_s;
};

struct manta__eventfile {
  struct manta__outfile file;
  manta__buf path;  /* of names, for manta__leaves */
  manta__buf arena; /* tags of the values below */
  MantaTb__Summary__Value *value, **list;
  size_t *tag; /* offsets in the arena */
  size_t count, cap;
};

/* events.out.tfevents.SECONDS.HOST.WHOSE.manta; whose: the id of a run, or that of a process. */
void manta__eventfile_name(char *out, size_t size, const char *whose);
/* One of that name that is there already, whenever and wherever it was made; false: none. */
bool manta__eventfile_find(char *out, size_t size, int dirfd, const char *whose);

manta_status manta__eventfile_open(struct manta__eventfile *e, int dirfd, const char *name,
                                   manta_error *err);
void manta__eventfile_close(struct manta__eventfile *e);
/* Cuts it, as manta__outfile_back; {0}: to the record that every event file begins with. */
manta_status manta__eventfile_back(struct manta__eventfile *e, struct manta__outfile_mark m,
                                   manta_error *err);
/* One event. */
manta_status manta__eventfile_put(struct manta__eventfile *e, MantaTb__Event *event,
                                  manta_error *err);
/* One summary value of its own event. */
manta_status manta__eventfile_put_value(struct manta__eventfile *e, struct manta__when when,
                                        MantaTb__Summary__Value *value, manta_error *err);

/* A row: numbers and bools are scalars; a list of numbers is a histogram; bytes that are a PNG,
 * JPEG or GIF are an image; what is nested has the names joined with '/'. Text, and names that
 * begin with '_' but for _time_this_iter_s and _time_total_s, are left out. suffix: behind each
 * name, or "". */
manta_status manta__eventfile_row(struct manta__eventfile *e, struct manta__when when,
                                  const char *suffix, const manta_value *row, manta_error *err);
/* Markdown. */
manta_status manta__eventfile_text(struct manta__eventfile *e, struct manta__when when,
                                   const char *tag, const char *text, size_t len, manta_error *err);
/* A map as a table of Markdown. */
manta_status manta__eventfile_table(struct manta__eventfile *e, struct manta__when when,
                                    const char *tag, const manta_value *map, manta_error *err);
/* What came before with this step or a later one is void. */
manta_status manta__eventfile_restart(struct manta__eventfile *e, struct manta__when when,
                                      manta_error *err);

/* --- histogram.c, image.c: one value each --- */

/* Whether all items of the list are numbers, and there is one. */
bool manta__is_histogram(const manta_value *list);
manta_status manta__eventfile_histogram(struct manta__eventfile *e, struct manta__when when,
                                        const char *tag, const manta_value *list, manta_error *err);

/* Size and channels of an encoded image; false: it is none that is known. */
struct manta__image {
  int width, height, channels;
};
bool manta__image_look(const uint8_t *p, size_t n, struct manta__image *out);

/* --- hparams.c: the plugin that compares runs by their parameters --- */

/* The run's parameters; group: runs of the same parameters, or "". */
manta_status manta__eventfile_hparams(struct manta__eventfile *e, struct manta__when when,
                                      const manta_value *hparams, const char *group,
                                      manta_error *err);
/* Which parameters and metrics an experiment has; metrics: a list of tags. */
manta_status manta__eventfile_experiment(struct manta__eventfile *e, struct manta__when when,
                                         const manta_value *hparams, const manta_value *metrics,
                                         manta_error *err);
manta_status manta__eventfile_end(struct manta__eventfile *e, struct manta__when when, bool ok,
                                  manta_error *err);

#endif
