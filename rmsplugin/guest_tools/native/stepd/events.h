/* Events of steps, which the hub writes into a file and the wrapper passes on to Slurm (docs/protocols.md, section 3). */

#ifndef EVENTS_H
#define EVENTS_H

#include "protocol/wire.h"

void events_hub(void); /* a hub begins: the steps of the hub before are gone */
void events_began(uint32_t step, uint32_t ntasks, uint32_t limit_s, const char *name);
void events_ended(uint32_t step, int status);

/* The step's status in Slurm's view, from its status so far and a frame's: death by a signal comes before exit
 * codes, the first such death counts, and the highest code. */
int events_worse(int status, const struct frame *frame);

#endif
