-- rmsplugin_options: the options that users may give sbatch for a vjob. Part of rmsplugin.lua, which says more.
--
-- An option that VMs cannot keep is refused with a sentence that says what to do instead: nothing that a user asked for is
-- lost without a word. docs/user/submitting.md has a line for every option.

local options = {}

-- The most names that rmsplugin/model/hostlist.py makes of a list.
local MAX_HOSTS = 65536

-- Whether the user said something. Where they did not, Slurm puts the largest-but-one number of the field's width (or
-- nothing, depending on field and release); in Lua 5.1 all numbers are doubles, so the widest is compared with care.
local function given16(value)
  return value ~= nil and value < 65534
end

local function given32(value)
  return value ~= nil and value < 4294967294
end

local function given64(value)
  return value ~= nil and value < 1.8e19
end

-- The same for fields in which 0, too, means that the user said nothing, or asked for nothing.
local function above16(value)
  return given16(value) and value > 0
end

local function above32(value)
  return given32(value) and value > 0
end

local function text(value)
  return type(value) == "string" and value ~= ""
end

local function integer(value)
  return string.format("%.0f", value)
end

-- A refusal: raised by the checks, and told to the user as it is. Everything else that is raised is a fault of ours.
local function refuse(format, ...)
  error({ refusal = string.format(format, ...) }, 0)
end

-- The line that the plugin puts before a script, wherever the wrapper lay then.
local OWN_LINE = "^#!/%S+ vms=%d+,cpus=%d+,memory=%d+,ntasks=%d+,cpus_per_task=%d+,image=[^\n]*\n()"

-- A script without the plugin's own line, as its user wrote it: `scontrol write batch_script` and the spool directory of a
-- node show it with the line, and such a copy is submitted again.
function options.users_script(script)
  local from = 1
  repeat
    -- Never of the whole script, which may have megabytes.
    local rest = string.match(string.sub(script, from, from + 511), OWN_LINE)
    from = from + (rest or 1) - 1
  until rest == nil
  return from == 1 and script or string.sub(script, from)
end

-- How many nodes a host list such as "n[1-3,07],gpu1" names.
function options.count_hosts(option, list)
  local count, readable = 0, not string.find(list, "[^%w_.,%-%[%]]")
  local function count_numbers(ranges)
    local numbers = 0
    for range in string.gmatch(string.sub(ranges, 2, -2) .. ",", "([^,]*),") do
      local low, high = string.match(range .. "-" .. range, "^(%d+)%-(%d+)")
      readable = readable and low ~= nil and #low < 10 and #high < 10 and tonumber(low) <= tonumber(high)
        and (range == low or range == low .. "-" .. high)
      numbers = numbers + (readable and high - low + 1 or 0)
    end
    return string.format("<%.0f>", numbers)
  end
  -- Commas in brackets are between numbers, those outside between names.
  for name in string.gmatch(string.gsub(list, "%b[]", count_numbers) .. ",", "([^,]*),") do
    local numbers = 1
    for factor in string.gmatch(name, "<(%d+)>") do
      numbers = numbers * factor
    end
    readable = readable and string.match(string.gsub(name, "<%d+>", "0"), "^[%w_.%-]+$") ~= nil
    count = count + numbers
  end
  if not readable then
    refuse("%s=%s: this is no list of nodes; write it as n1,n2 or n[1-2]", option, list)
  end
  if count > MAX_HOSTS then
    refuse("%s=%s: these are more than %s nodes; name them by a feature, with --constraint", option, list,
      integer(MAX_HOSTS))
  end
  return count
end

-- Checks the value of -C: names, & and | between them, and parentheses. rmsplugin/model/constraints.py reads the same.
function options.check_features(features)
  if string.find(features, "[%[%]]") then
    refuse("--constraint=%s: brackets are not for VMs, each of which has a node of its own: write (a|b) for nodes that have"
      .. " either feature", features)
  end
  if string.find(features, "*", 1, true) then
    refuse("--constraint=%s: VMs do not count nodes with a feature: write the feature alone, and all VMs of the job get"
      .. " such nodes, or submit one job for each kind of node", features)
  end
  if string.find(features, ",", 1, true) then
    refuse("--constraint=%s: write a&b for nodes that have both features, a|b for nodes that have either", features)
  end
  if string.find(features, "[^%w_.:+@/%-&|()]") then
    refuse("--constraint=%s: names of features are made of letters, digits and _ . : + @ / -, with & and | between them,"
      .. " and parentheses", features)
  end
  -- What is in parentheses is one name; what is left must be names with one operator between each two.
  local rest, groups, joined = string.gsub(features, "[^&|()]+", "n")
  repeat
    rest, groups = string.gsub(rest, "%(n%)", "n")
    rest, joined = string.gsub(rest, "n[&|]n", "n", 1)
  until groups + joined == 0
  if rest ~= "n" then
    refuse("--constraint=%s: this cannot be read; write it as a&(b|c), with & and | between the names of features", features)
  end
end

-- The name of each licence in "a:2,b@server", without count and server.
local function licence_names(licenses)
  local names = {}
  for name in string.gmatch(licenses or "", "[^,;|]+") do
    names[#names + 1] = string.match(name, "^%s*([^:*@=%s]*)")
  end
  return names
end

local function has_gate(licenses, gate)
  for _, name in ipairs(licence_names(licenses)) do
    if name == gate then
      return true
    end
  end
  return false
end

-- The user's licences with the gate beside them.
function options.gated(licenses, gate)
  if has_gate(licenses, gate) then
    refuse("the licence %s is the plugin's own, by which jobs wait for their VMs: leave it out of --licenses", gate)
  end
  if not text(licenses) then
    return gate
  end
  if string.find(licenses, "|", 1, true) then
    refuse("--licenses=%s: alternatives cannot be combined with the licence by which jobs wait for their VMs: ask for one"
      .. " of them", licenses)
  end
  return licenses .. "," .. gate
end

-- Options whose meaning a VM cannot keep: the field, what is an option given, and what its user is told.
local GENERIC = "VMs have no GPUs or other generic resources: leave out --gres, --gpus and the like, or take another"
  .. " partition"
local THREADS = "VMs have CPUs alone, no sockets, cores and threads to choose: leave out --extra-node-info,"
  .. " --sockets-per-node, --cores-per-socket, --threads-per-core and --hint, and ask for --cpus-per-task"
local PER_CORE = "VMs have CPUs alone, no sockets and cores: leave out --ntasks-per-core and --ntasks-per-socket, and ask"
  .. " for --ntasks-per-node"
local CPU_SPEED = "VMs have no say in their node's frequency or power: leave out --cpu-freq and --power"
-- Values of `shared`. The first three are wishes that the engine keeps; 1 is --oversubscribe, a leave to share, as VMs
-- do.
local EXCLUSIVE, EXCLUSIVE_USER, EXCLUSIVE_MCS, OVERSUBSCRIBE = 0, 2, 3, 1
local ALONE = {
  [EXCLUSIVE] = ",exclusive=yes", [EXCLUSIVE_USER] = ",exclusive=user", [EXCLUSIVE_MCS] = ",exclusive=mcs",
}
local function exclusive(value)
  return given16(value) and not ALONE[value] and value ~= OVERSUBSCRIBE
end
local function yes(value)
  return value == true or value == 1
end
local function spread(value)
  local bit = slurm.SPREAD_JOB
  return bit ~= nil and value ~= nil and math.floor(value / bit) % 2 == 1
end
local REFUSED = {
  { "gres", text, GENERIC }, { "tres_per_job", text, GENERIC }, { "tres_per_node", text, GENERIC },
  { "tres_per_socket", text, GENERIC }, { "cpus_per_tres", text, GENERIC }, { "mem_per_tres", text, GENERIC },
  { "tres_bind", text, GENERIC }, { "tres_freq", text, GENERIC }, { "ntasks_per_gpu", above16, GENERIC },
  { "ntasks_per_tres", above16, GENERIC },
  { "ntasks_per_core", above16, PER_CORE }, { "ntasks_per_socket", above16, PER_CORE },
  { "ntasks_per_board", above16, PER_CORE },
  { "sockets_per_node", above16, THREADS }, { "cores_per_socket", above16, THREADS },
  { "threads_per_core", above16, THREADS }, { "sockets_per_board", above16, THREADS },
  { "boards_per_node", above16, THREADS },
  { "cpu_freq_min", above32, CPU_SPEED }, { "cpu_freq_max", above32, CPU_SPEED }, { "cpu_freq_gov", above32, CPU_SPEED },
  { "power_flags", function(value) return value ~= nil and value > 0 and value < 254 end, CPU_SPEED },
  { "shared", exclusive, "--exclusive=topo is about the network of nodes, and VMs move: take --exclusive, --exclusive=user"
    .. " or --exclusive=mcs, or leave it out" },
  { "pn_min_tmp_disk", above32, "--tmp asks for room on a node's disk, and a VM does not see it: leave it out; /tmp is as"
    .. " large as the VM's image makes it" },
  { "contiguous", above16, "--contiguous is about neighbouring nodes, and VMs move: leave it out, or name nodes with"
    .. " --nodelist" },
  { "core_spec", given16, "--core-spec and --thread-spec are about a node's own CPUs, and VMs have their own: leave them"
    .. " out" },
  { "segment_size", above16, "--segment is about the network of nodes, and VMs move: leave it out, or name nodes with"
    .. " --nodelist" },
  { "reservation", text, "VMs do not run on the nodes of a reservation: leave out --reservation, or take another"
    .. " partition" },
  { "batch_features", text, "--batch chooses among a job's nodes, and the script runs in the first VM: leave it out" },
  { "prefer", text, "--prefer is a wish that VMs cannot keep: leave it out, or say with --constraint what nodes must have" },
  { "network", text, "--network is about a node's network adapters, and VMs have their own: leave it out" },
  { "burst_buffer", text, "burst buffers are not seen in VMs: leave out --bb and --bbf, and use a shared directory" },
  { "container", text, "--container runs a job in a container of its node, and this one runs in a VM: start the container in"
    .. " the script" },
  { "container_id", text, "--container-id runs a job in a container of its node, and this one runs in a VM: start the"
    .. " container in the script" },
  { "reboot", yes, "--reboot is about nodes, and a VM is booted for each job: leave it out" },
  { "cron_job", yes, "scrontab cannot start VMs: have it start a job of another partition that submits this one" },
}

-- Refuse the first field that is asked for in a way of the list, with its sentence.
function options.refuse_asked(job_desc, list)
  for _, entry in ipairs(list) do
    local field, asked, sentence = entry[1], entry[2], entry[3]
    if asked(job_desc[field]) then
      refuse("%s", sentence)
    end
  end
end

-- Natively an exclusive job gets all CPUs of its nodes. A VM gets those that its user names, so one has to name some.
local function check_cpus_are_said(job_desc)
  local said = above32(job_desc.num_tasks) or above16(job_desc.cpus_per_task) or above16(job_desc.ntasks_per_node)
    or above16(job_desc.pn_min_cpus) or text(job_desc.tres_per_task)
  if job_desc.shared == EXCLUSIVE and not said then
    refuse("--exclusive keeps other jobs' VMs off the nodes, but does not give a VM all CPUs of its node: say how many it"
      .. " needs, with --cpus-per-task or --ntasks")
  end
end

function options.check(job_desc)
  if job_desc.user_id == 0 then
    refuse("jobs of root do not run in VMs: submit it as the user whose job it is, or with --uid=NAME")
  end
  if given32(job_desc.het_job_offset) then
    refuse("heterogeneous jobs cannot run in VMs: submit one job for each part, and tie them with --dependency")
  end
  if not text(job_desc.script) then
    refuse("salloc and srun cannot start VMs: submit a script with sbatch; `rmsplugin ssh JOBID` then gives a shell in it,"
      .. " and srun inside the script starts tasks in its VMs")
  end
  options.refuse_asked(job_desc, REFUSED)
  check_cpus_are_said(job_desc)
  if above32(job_desc.req_switch) and given32(job_desc.wait4switch) then
    refuse("--switches=N@TIME gives up the switches after some time, and VMs are kept on at most N switches for good:"
      .. " write --switches=N, or leave it out")
  end
end

-- `--cpus-per-task`; newer releases of Slurm say it in tres_per_task as well.
function options.cpus_per_task(job_desc)
  local tres = job_desc.tres_per_task
  local cpus = text(tres) and string.match(tres, "^cpu[:=](%d+)$")
  if text(tres) and not cpus then
    refuse("--tres-per-task can ask for CPUs alone, as cpu=2: leave out GPUs and other generic resources, or take another"
      .. " partition")
  end
  return above16(job_desc.cpus_per_task) and job_desc.cpus_per_task or tonumber(cpus or 1)
end

-- What the engine has to know of VMs beside each other, as pairs for the wrapper's line.
local MANY = 999999 -- more switches than there are
function options.wishes(job_desc)
  local switches = above32(job_desc.req_switch) and ",switches=" .. integer(math.min(job_desc.req_switch, MANY)) or ""
  return (spread(job_desc.bitflags) and ",spread=1" or "") .. (ALONE[job_desc.shared] or "") .. switches
end

options.given16, options.given32, options.given64 = given16, given32, given64
options.above16, options.above32, options.text = above16, above32, text
options.integer, options.refuse, options.has_gate = integer, refuse, has_gate

return options
