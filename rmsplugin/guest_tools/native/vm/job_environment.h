/* The part of the job's environment for a shell from outside (`rmsplugin ssh`). */

#ifndef JOB_ENVIRONMENT_H
#define JOB_ENVIRONMENT_H

/* Set Slurm's variables of the job, unless the session comes from another VM of the vjob: natively, ssh between nodes passes
 * none of them, and MPI programs take them for more than they are. VJOB is the text of the engine's file. */
void set_job_environment(const char *vjob);

#endif
