/* Values of srun's options. All end srun, with Slurm's words, if a text is no value. */

#ifndef VALUES_H
#define VALUES_H

#include "base/names.h"

#include <stdbool.h>

enum { BAD_OPTION = 255 }; /* Slurm's exit code for an option that it cannot read */

uint32_t value_number(const char *value, const char *option, uint32_t least);
uint32_t value_nodes(const char *value);
uint32_t value_time(const char *value); /* in seconds; 0: no limit */
uint64_t value_size(const char *value, const char *option); /* in MiB */
void value_memory(const struct vjob *vjob, uint64_t wanted_mib);
void value_mpi(const char *type);
bool value_asks_for_none(const char *value); /* of --gres and --gpus: none, 0, gpu:0 */

#endif
