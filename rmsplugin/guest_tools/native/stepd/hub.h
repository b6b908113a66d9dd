/* The hub of a vjob, in its first VM: gives steps their numbers and CPUs, and carries frames between the sruns, which
 * connect to its socket, and the agents of the VMs. Started by the first srun; ends after a long time without requests. */

#ifndef HUB_H
#define HUB_H

int hub_main(void);

#endif
