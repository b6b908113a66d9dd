/* The hub of a vjob, as seen by the programs that send it requests. */

#ifndef HUB_CONNECT_H
#define HUB_CONNECT_H

#include "base/places.h"

#include <stdint.h>

#define HUB_SOCKET VJOB_STATE "/stepd.socket"
#define HUB_LOG VJOB_JOB "/stepd.log"        /* the messages of ssh */
#define HUB_EVENTS VJOB_STATE "/step-events" /* the steps that began and ended (stepd/events.c) */

int hub_connect(void); /* start the hub if need be; a socket, or -1. Only in the first VM */
/* The script has ended: its steps end, too. A descriptor that is readable after their end; -1: there is no hub. */
int hub_end_steps(void);
void hub_signal_step(uint32_t step, int number); /* its tasks, if a hub runs; waits until the hub has read it */

#endif
