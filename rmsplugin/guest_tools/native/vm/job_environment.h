/* What a shell from outside (`rmsplugin ssh`) gets of the job's environment. */

#ifndef JOB_ENVIRONMENT_H
#define JOB_ENVIRONMENT_H

/* Set what Slurm says of the job, unless the session comes from another VM of the vjob: natively ssh between nodes gives none
 * of it, and MPI programs take it for more than it is. VJOB is the text of the engine's file. */
void set_job_environment(const char *vjob);

#endif
