/* The hub of a vjob, in its first VM: gives steps their numbers and CPUs, and carries frames between the sruns, which
 * connect to its socket, and the agents of the VMs. Started by the first srun; ends when nothing was asked for long. */

#ifndef HUB_H
#define HUB_H

#include <stdbool.h>
#include <stdint.h>

#define HUB_SOCKET VJOB_STATE "/stepd.socket"
#define HUB_LOCK VJOB_STATE "/stepd.lock"
#define HUB_LOG VJOB_JOB "/stepd.log" /* what ssh says */
#define HUB_STEPS VJOB_STATE "/steps" /* number of the next step */
#define HUB_EVENTS_NAME "step-events"
#define HUB_EVENTS VJOB_STATE "/" HUB_EVENTS_NAME /* which steps began and ended (events.c) */

int hub_main(void);
int hub_connect(void); /* start it if need be; a socket, or -1. Only in the first VM */
/* The script has ended: have its steps end, too. A descriptor that is readable once they have; -1: there is no hub. */
int hub_end_steps(void);
void hub_signal_step(uint32_t step, int number); /* its tasks, if a hub runs; waits until that has read it */

#endif
