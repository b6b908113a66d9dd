/* The hub of a vjob, as the programs see it that ask it for something. */

#ifndef HUB_CONNECT_H
#define HUB_CONNECT_H

#include "base/places.h"

#include <stdint.h>

#define HUB_SOCKET VJOB_STATE "/stepd.socket"
#define HUB_LOG VJOB_JOB "/stepd.log"        /* what ssh says */
#define HUB_EVENTS VJOB_STATE "/step-events" /* which steps began and ended (stepd/events.c) */

int hub_connect(void); /* start it if need be; a socket, or -1. Only in the first VM */
/* The script has ended: have its steps end, too. A descriptor that is readable once they have; -1: there is no hub. */
int hub_end_steps(void);
void hub_signal_step(uint32_t step, int number); /* its tasks, if a hub runs; waits until that has read it */

#endif
