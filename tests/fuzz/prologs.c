/* What a user's --task-prolog prints. */

#include "../../rmsplugin/guest_tools/native/stepd/task_scripts.c"

#include "targets.h"

void parse_prolog(char *text)
{
    obey_output(text);
}
