/* The agent of a VM: carries frames between the hub (its standard streams) and the steps of this VM. */

#ifndef AGENT_H
#define AGENT_H

int agent_main(void);

#endif
