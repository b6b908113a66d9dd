/* The process that runs the tasks of one step in this VM: starts them, passes their streams on, tells how they end. */

#ifndef STEP_H
#define STEP_H

_Noreturn void step_run(int socket); /* connected to the agent; the first frame is START */

#endif
