# shellcheck shell=bash
# What the lines `#CASE submit:` of a case may use. Run by the user on the login node: bash prelude.sh PARTITION DIRECTORY LINES
partition=$1
cd "$2" || exit 1

# The native partition's own default, which a site may have chosen otherwise for VMs.
export SBATCH_MEM_PER_CPU=128

sbatch() {
    command sbatch --partition="$partition" "$@"
}

# until_so COMMAND...: wait until it succeeds.
until_so() {
    for _ in {1..1000}; do
        "$@" && return
        sleep 0.3
    done
    echo "waited in vain for: $*"
    exit 99
}

# wait_for FILE...: wait until the files exist.
wait_for() {
    for file; do
        until_so test -e "$file"
    done
}

# ended JOB: wait until the job has left the queue.
_gone() { [ -z "$(squeue -h -j "$1" 2>/dev/null)" ]; }
ended() {
    until_so _gone "$1"
}

# accounted JOB: wait until the accounting has the job's end, its steps' included, and its beginning: a slurmdbd that was
# just started may have that later.
_counted() {
    sacct -nP -j "$1" -o state | grep -q . && ! sacct -nP -j "$1" -o end | grep -q Unknown &&
        sacct -nPX -j "$1" -o workdir | grep -q .
}
accounted() {
    ended "$1"
    until_so _counted "$1"
}

eval "$3"
