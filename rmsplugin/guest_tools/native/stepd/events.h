/* Events of steps, which the hub writes into a file and the wrapper has Slurm know (docs/protocols.md, section 3). */

#ifndef EVENTS_H
#define EVENTS_H

#include "protocol/wire.h"

void events_hub(void); /* a hub begins: the steps of one before are no more */
void events_began(uint32_t step, uint32_t ntasks, uint32_t limit_s, const char *name);
void events_ended(uint32_t step, int status);

/* Of a step's status so far and what a frame tells, what Slurm takes for the step's: death by a signal before exit
 * codes, the first such death, the highest code. */
int events_worse(int status, const struct frame *frame);

#endif
