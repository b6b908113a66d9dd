# shellcheck shell=sh
# vjob: what the tools inside the guest know of the vjob that this VM belongs to. Sourced by them; changes nothing.
# shellcheck disable=SC2034  # the variables are for those who source this

bin=/run/rmsplugin/bin
etc=/run/rmsplugin/etc
job=/run/rmsplugin/job
login=/run/rmsplugin/login

# vjob_value KEY: the value of KEY in the file that the engine wrote; it is read, never evaluated.
vjob_value() {
    while IFS= read -r line; do
        case $line in
        "$1="*)
            printf '%s\n' "${line#*=}"
            return 0
            ;;
        esac
    done <"$etc/vjob"
    return 1
}
