-- rmsplugin: the part of the plugin that runs inside slurmctld (job_submit/lua).
--
-- A batch job that is submitted to a vjob partition is checked, put behind the gate, and wrapped: one line is put before
-- its script, so that slurmd starts the plugin's wrapper, which runs the rest of the script inside the job's virtual
-- machines. On a site without VMs (platform native) it is not wrapped: rmsplugin_native.lua has what is done there. All other jobs pass untouched, except that the plugin's line is taken off a script that was copied from a
-- job. slurmctld waits for this code, so it contacts nobody and reads no file after it is loaded.
--
-- The gate is a licence that nobody has but the engine: the job waits for it, with Slurm's own priority, holds,
-- dependencies and begin times, until the engine takes it off.
--
-- Runs on Lua 5.1 (Slurm of Debian 12) to 5.4. Slurm lets a job PASS when this code raises an error, so every entry is
-- guarded: an error rejects a vjob job, which must never run outside a VM, and lets every other job pass.

local options = require("rmsplugin_options")
local native = require("rmsplugin_native")
local given16, given32, given64 = options.given16, options.given32, options.given64
local above16, above32, text = options.above16, options.above32, options.text
local integer, refuse = options.integer, options.refuse

local rmsplugin = {}

-- The kernel cuts the interpreter's line off behind 255 bytes.
local MAX_WRAPPER_LINE = 250

-- What Slurm takes unless SchedulerParameters has max_script_size.
local DEFAULT_SCRIPT_SIZE = 4 * 1024 * 1024

-- No image boots with less memory.
local LEAST_MEMORY_MIB = 96

local function ceil_div(a, b)
  return math.floor((a + b - 1) / b)
end

-- The names in "a,b"; a job without one goes to the default partition.
local function partitions_of(name, part_list)
  local names = {}
  if text(name) then
    for part in string.gmatch(name, "[^,]+") do
      names[#names + 1] = part
    end
  else
    for part_name, part in pairs(part_list or {}) do
      if part.flag_default == 1 then
        names[#names + 1] = part_name
      end
    end
  end
  return names
end

-- The uid that slurmctld runs as; nil when it cannot be told. Read once, when slurmctld loads this file.
local function own_uid()
  local file = io.open("/proc/self/status", "r")
  if file == nil then
    return nil
  end
  local uid = string.match(file:read("*a") or "", "\nUid:%s+(%d+)")
  file:close()
  return tonumber(uid)
end

-- The number of `--nodes`, the least one of a range; nil without. sbatch puts the number of nodes that `--nodelist` names
-- there as well; only with `--nodes` does it give a maximum, too.
local function nodes_of(job_desc)
  local nodes = above32(job_desc.min_nodes) and job_desc.min_nodes or nil
  if nodes and text(job_desc.req_nodes) and not given32(job_desc.max_nodes)
    and nodes == options.count_hosts("--nodelist", job_desc.req_nodes) then
    return nil
  end
  return nodes
end

-- How many VMs, and what each of them gets. `--nodes` counts VMs; without it there is one VM a task, or one for every
-- `--ntasks-per-node` tasks. `--mem` is what a node gets, and a VM is a node to its job; only where the user named neither
-- nodes nor tasks per node would Slurm give that memory to all tasks together, so there each VM gets its share.
-- Where tasks do not divide evenly, the first VMs have one task more, and more CPUs: all together have those that native
-- nodes would have. `--ntasks-per-node` with `--ntasks` makes Slurm take CPUs for so many tasks on every node.
local function geometry_of(job_desc, config)
  local cpus_per_task = options.cpus_per_task(job_desc)
  local per_node = above16(job_desc.ntasks_per_node) and job_desc.ntasks_per_node or nil
  local ntasks = above32(job_desc.num_tasks) and job_desc.num_tasks or nil
  if ntasks and above32(job_desc.min_cpus) and job_desc.min_cpus < ntasks * cpus_per_task then
    refuse("--overcommit is not for VMs, where each task has its own CPUs: leave it out, or ask for fewer --ntasks and"
      .. " start more processes in the script")
  end
  local vms, tasks_per_vm
  local share = 1
  local nodes = nodes_of(job_desc)
  if nodes then
    vms = nodes
    ntasks = ntasks or vms * (per_node or 1)
    tasks_per_vm = ceil_div(ntasks, vms)
  elseif per_node ~= nil then
    ntasks = ntasks or per_node
    vms = ceil_div(ntasks, per_node)
    tasks_per_vm = ceil_div(ntasks, vms)
  else
    ntasks = ntasks or 1
    vms = ntasks
    tasks_per_vm = 1
    share = vms
  end
  if vms < 1 or ntasks < vms then
    refuse("%s tasks cannot use %s VMs: ask for at least one task a VM, or for fewer --nodes",
      integer(ntasks), integer(vms))
  end

  local least = given16(job_desc.pn_min_cpus) and job_desc.pn_min_cpus or 1
  if per_node ~= nil and ntasks > 1 then
    least = math.max(least, per_node * cpus_per_task)
  end
  local cpus = math.max(tasks_per_vm * cpus_per_task, least)
  local large = ntasks % vms
  local small_cpus = math.max(math.floor(ntasks / vms) * cpus_per_task, least)
  if large == 0 or small_cpus == cpus then
    large, small_cpus = vms, cpus
  end

  local memory, small_memory
  -- pn_min_memory holds both kinds, but a double cannot hold its flag bit and its value at once.
  if given64(job_desc.min_mem_per_cpu) then
    memory, small_memory = job_desc.min_mem_per_cpu * cpus, job_desc.min_mem_per_cpu * small_cpus
  elseif given64(job_desc.min_mem_per_node) then
    memory = ceil_div(job_desc.min_mem_per_node, share)
    small_memory = memory
  else
    memory, small_memory = config.default_memory_per_cpu_mib * cpus, config.default_memory_per_cpu_mib * small_cpus
  end
  if memory < 1 then
    refuse("--mem=0 asks for all memory of a node, and VMs share their nodes: say how much each VM needs, e.g. --mem=2G")
  end
  return {
    vms = vms, cpus = cpus, memory = memory, ntasks = ntasks, cpus_per_task = cpus_per_task,
    small = large < vms and { cpus = small_cpus, memory = small_memory } or nil,
    total_cpus = large * cpus + (vms - large) * small_cpus,
    total_memory = large * memory + (vms - large) * small_memory,
  }
end

local function check_limits(geometry, image, config)
  local vms, cpus, memory = geometry.vms, geometry.cpus, geometry.memory
  local least = config.image_memory_mib[image] or LEAST_MEMORY_MIB
  if config.max_vms and vms > config.max_vms then
    refuse("%s VMs are more than the %s that a job can have here: ask for fewer --nodes, or fewer tasks with more"
      .. " --cpus-per-task", integer(vms), integer(config.max_vms))
  end
  if config.max_vm_cpus and cpus > config.max_vm_cpus then
    refuse("no node can host a VM of %s CPUs (the most is %s): spread the tasks over more --nodes, or ask for fewer"
      .. " --cpus-per-task", integer(cpus), integer(config.max_vm_cpus))
  end
  local least_memory = geometry.small and geometry.small.memory or memory
  if least_memory < least then
    refuse("a VM of %s MiB is too small for the image %s (the least is %s): ask for more --mem", integer(least_memory), image,
      integer(least))
  end
  if config.max_vm_memory_mib and memory > config.max_vm_memory_mib then
    refuse("no node can host a VM of %s MiB (the most is %s): ask for less --mem, or spread the tasks over more --nodes",
      integer(memory), integer(config.max_vm_memory_mib))
  end
  local of = geometry.small and "of up to" or "of"
  if config.max_total_cpus and geometry.total_cpus > config.max_total_cpus then
    refuse("%s VMs %s %s CPUs are more than the %s CPUs that there are: ask for fewer tasks or CPUs",
      integer(vms), of, integer(cpus), integer(config.max_total_cpus))
  end
  if config.max_total_memory_mib and geometry.total_memory > config.max_total_memory_mib then
    refuse("%s VMs %s %s MiB are more than the %s MiB that there are: ask for less memory or fewer VMs",
      integer(vms), of, integer(memory), integer(config.max_total_memory_mib))
  end
end

local function image_of(job_desc, config)
  local environment = job_desc.environment
  local image = environment and environment["RMSPLUGIN_IMAGE"]
  if not text(image) then
    return "default"
  end
  for _, name in ipairs(config.images) do
    if name == image then
      return name
    end
  end
  refuse("RMSPLUGIN_IMAGE=%s: there is no such image here; there are: %s", image, table.concat(config.images, ", "))
end

-- The line put before the script: the wrapper, and what wrapper and engine have to know of the job.
local function wrapper_line(job_desc, geometry, image, config)
  local line = string.format("#!%s vms=%s,cpus=%s,memory=%s,ntasks=%s,cpus_per_task=%s,image=%s", config.wrapper,
    integer(geometry.vms), integer(geometry.cpus), integer(geometry.memory), integer(geometry.ntasks),
    integer(geometry.cpus_per_task), image)
  if geometry.small then
    line = string.format("%s,small_cpus=%s,small_memory=%s", line, integer(geometry.small.cpus),
      integer(geometry.small.memory))
  end
  line = line .. options.wishes(job_desc)
  if #line > MAX_WRAPPER_LINE then
    error("the path of the wrapper is too long: " .. config.wrapper)
  end
  local longest, length
  for _, entry in ipairs({ { "features", "--constraint", job_desc.features }, { "nodes", "--nodelist", job_desc.req_nodes },
    { "exclude", "--exclude", job_desc.exc_nodes } }) do
    local key, option, value = entry[1], entry[2], entry[3]
    if text(value) then
      if key == "features" then
        options.check_features(value)
      else
        options.count_hosts(option, value)
      end
      line = line .. "," .. key .. "=" .. string.gsub(value, ",", ";")
      if longest == nil or #value > length then
        longest, length = option, #value
      end
    end
  end
  if #line > MAX_WRAPPER_LINE then
    refuse("%s is too long by %s characters: name nodes in the short form n[1-9], or by a feature that they have", longest,
      integer(#line - MAX_WRAPPER_LINE))
  end
  -- Options as they were given, for the script's environment: natively an option that was not given sets no variable.
  for _, entry in ipairs({ { ",x_ntasks=default", not above32(job_desc.num_tasks) },
    { ",x_memory=per_cpu", given64(job_desc.min_mem_per_cpu) } }) do
    local hint, holds = entry[1], entry[2]
    if holds and #line + #hint <= MAX_WRAPPER_LINE then
      line = line .. hint
    end
  end
  return line
end

-- Slurm looks at the length after this, and says `Pathname of a file, directory or other parameter too long`.
local function check_length(script, own, config)
  local most = config.max_script_size or DEFAULT_SCRIPT_SIZE
  if #script > most and (config.max_script_size or own <= most) then
    refuse("the script has %s bytes, and a job that runs in VMs can have %s at most: put its data into a file, and read that"
      .. " in the script", integer(own), integer(most - (#script - own)))
  end
end

-- From here on the job is Slurm's side of a vjob: a wrapper on a front, which has all CPUs and memory of its VMs, so that
-- Slurm's books are true.
local function wrap(job_desc, geometry, image, config)
  local own = options.users_script(job_desc.script)
  local script = wrapper_line(job_desc, geometry, image, config) .. "\n" .. own
  check_length(script, #own, config)
  local licenses = options.gated(job_desc.licenses, config.gate)
  job_desc.script = script
  job_desc.licenses = licenses
  job_desc.min_nodes = 1
  job_desc.max_nodes = 1
  local cpus = geometry.total_cpus
  job_desc.min_cpus = cpus
  job_desc.max_cpus = slurm.NO_VAL
  -- Slurm 24 gives a job the CPUs of the tasks that it counts, and none for what --mincpus asks for beside them.
  job_desc.num_tasks = geometry.ntasks * geometry.cpus_per_task == cpus and geometry.ntasks or slurm.NO_VAL
  job_desc.min_mem_per_node = geometry.total_memory
  -- These were for each node, and all is on one node now.
  job_desc.ntasks_per_node = slurm.NO_VAL16
  if above32(job_desc.req_switch) then
    job_desc.req_switch = slurm.NO_VAL -- its VMs are on so few switches, and it is on one node
  end
  if options.wishes(job_desc):find("exclusive", 1, true) then
    job_desc.shared = slurm.NO_VAL16 -- other users' wrappers may be on its front
  end
  job_desc.pn_min_cpus = slurm.NO_VAL16
  -- These name nodes that host VMs; the wrapper's node is another.
  for _, field in ipairs({ "features", "req_nodes", "exc_nodes" }) do
    if text(job_desc[field]) then
      job_desc[field] = ""
    end
  end
  if not given16(job_desc.requeue) then
    -- A requeue loses nothing, and the engine needs it when a front is lost. --no-requeue stays the user's choice.
    job_desc.requeue = 1
  end
end

-- The fields that a user may not change on a vjob, by scontrol's names: its VMs stay as they were at submission.
local FIXED = {
  { "num_tasks", "NumTasks", given32 }, { "min_cpus", "NumCPUs", given32 }, { "max_cpus", "NumCPUs", given32 },
  { "min_nodes", "NumNodes", given32 }, { "max_nodes", "NumNodes", given32 },
  { "cpus_per_task", "CPUs/Task", given16 }, { "pn_min_cpus", "MinCPUsNode", given16 },
  { "pn_min_memory", "MinMemory", given64 }, { "ntasks_per_node", "TasksPerNode", given16 },
  { "pn_min_tmp_disk", "MinTmpDiskNode", given32 }, { "shared", "OverSubscribe", given16 },
  { "contiguous", "Contiguous", given16 }, { "req_switch", "Switches", given32 }, { "core_spec", "CoreSpec", given16 },
  { "sockets_per_node", "Sockets", above16 }, { "cores_per_socket", "Cores", above16 },
  { "threads_per_core", "Threads", above16 },
}
for _, pair in ipairs({
  { "features", "Features" }, { "batch_features", "BatchFeatures" }, { "prefer", "Prefer" },
  { "req_nodes", "ReqNodeList" }, { "exc_nodes", "ExcNodeList" }, { "reservation", "ReservationName" },
  { "network", "Network" }, { "burst_buffer", "BurstBuffer" }, { "script", "the script" }, { "gres", "Gres" },
  { "tres_per_job", "TresPerJob" }, { "tres_per_node", "TresPerNode" }, { "tres_per_socket", "TresPerSocket" },
  { "tres_per_task", "TresPerTask" }, { "cpus_per_tres", "CpusPerTres" }, { "mem_per_tres", "MemPerTres" },
}) do
  FIXED[#FIXED + 1] = { pair[1], pair[2], function(value) return type(value) == "string" end }
end

-- A user's change. Users may change all that is Slurm's own: holds, times, dependencies, priority, names. A change of
-- licences keeps the gate where the job is behind it; Slurm itself allows the change, or not.
local function check_changes(job_desc, job_rec, config)
  for _, entry in ipairs(FIXED) do
    if entry[3](job_desc[entry[1]]) then
      refuse("%s of a job that %s cannot be changed by its user: cancel it and submit it anew, or ask an"
        .. " administrator", entry[2], config.platform == "native" and "may be paused" or "runs in VMs")
    end
  end
  if type(job_desc.licenses) == "string" then
    local licenses = options.gated(job_desc.licenses, config.gate)
    if options.has_gate(job_rec.licenses, config.gate) then
      job_desc.licenses = licenses
    end
  end
end

-- The keys of `site`, and the types of their values.
local KEYS = {
  platform = "string", partitions = "table", wrapper = "string", gate = "string", images = "table", image_memory_mib = "table",
  default_memory_per_cpu_mib = "number", max_vms = "number", max_vm_cpus = "number", max_vm_memory_mib = "number",
  max_total_cpus = "number", max_total_memory_mib = "number", max_script_size = "number", slurm_uid = "number",
  broken = "string",
}

local function check_config(config)
  for key, value in pairs(config) do
    if type(value) ~= KEYS[key] then
      error(string.format("`%s` %s", tostring(key), KEYS[key] and "must be a " .. KEYS[key] or "is no key of site.lua"))
    end
  end
  if config.platform ~= "libvirt" and config.platform ~= "podman" and config.platform ~= "native" then
    error("`platform` must be libvirt, podman or native: " .. config.platform)
  end
  if config.platform ~= "native" and (not text(config.wrapper) or not string.match(config.wrapper, "^/[^%s,]+$")) then
    error("`wrapper` must be the absolute path of rmsplugin-job, without blanks")
  end
  for _, name in ipairs(config.images) do
    if not string.match(name, "^[%w_-]+$") or #name > 32 then
      error("`images` has a name that is not made of letters, digits, _ and -: " .. tostring(name))
    end
  end
  for name, memory in pairs(config.image_memory_mib) do
    if type(memory) ~= "number" then
      error("`image_memory_mib` must have a number for each image, not for " .. tostring(name))
    end
  end
  if not string.match(config.gate, "^[%w_.-]+$") then
    error("`gate` must be the name of a licence: " .. config.gate)
  end
end

-- Returns the two entries for job_submit.lua. Keys of `site`:
--   partitions                 the vjob partitions, as in the plugin's settings (required)
--   platform                   hypervisor.platform of the plugin's settings: "libvirt" (default), "podman", or "native",
--                              where jobs stay as they are, behind the gate; then wrapper, images and image_memory_mib are
--                              not needed, and max_vm_* are of a node
--   wrapper                    absolute path of rmsplugin-job on the fronts (required)
--   gate                       the licence by which jobs wait, slurm.gate of the plugin's settings (default "vjobgate")
--   images                     names of the guest images (default {"default"})
--   default_memory_per_cpu_mib memory for each CPU of a VM when the user names none (default 1024; native: Slurm's own)
--   image_memory_mib           what must be asked for in a VM of each image (default 96, enough for that of
--                              contrib/guest-image to boot; with overhead_mib in the plugin's settings less will do,
--                              as VMs are larger by that): { default = 16, ["debian-12"] = 16 }
--   max_vms, max_vm_cpus, max_vm_memory_mib, max_total_cpus, max_total_memory_mib
--                              what one job, and one VM, can have at most (default: no limit). Set max_vm_* to what the
--                              largest VM host can host, max_total_* to what all VM hosts can host together.
--   max_script_size            max_script_size of slurm.conf's SchedulerParameters, where it is set there: bytes of a script
--                              with the plugin's line, which is up to 250 bytes long
--   slurm_uid                  uid of SlurmUser (default: the uid that slurmctld runs as)
--   broken                     why the site's settings could not be read: every vjob job is refused with it
function rmsplugin.new(site)
  local config = {}
  for key, value in pairs(site) do
    config[key] = value
  end
  config.platform = config.platform or "libvirt"
  config.images = config.images or { "default" }
  if config.platform ~= "native" then
    config.default_memory_per_cpu_mib = config.default_memory_per_cpu_mib or 1024
  end
  config.image_memory_mib = config.image_memory_mib or {}
  config.gate = config.gate or "vjobgate"
  config.slurm_uid = config.slurm_uid or own_uid()

  local ours = {}
  for _, name in ipairs(config.partitions) do
    ours[name] = true
  end
  local function count_ours(names)
    local count = 0
    for _, name in ipairs(names) do
      count = count + (ours[name] and 1 or 0)
    end
    return count
  end

  -- Runs `check` for a job of ours, and turns an error into a message and a rejection.
  local function guarded(what, check)
    local done, problem = pcall(check)
    if done then
      return slurm.SUCCESS
    end
    if type(problem) == "table" and problem.refusal then
      slurm.log_user("%s", problem.refusal)
    else
      slurm.log_error("rmsplugin: %s: %s", what, tostring(problem))
      slurm.log_user("%s", "this job was refused because of a fault in the site's VM plugin, not in the job: tell the"
        .. " administrators, who find the reason in slurmctld's log")
    end
    return slurm.ERROR
  end

  -- A copy of a vjob's script in another partition, where no wrapper runs: the script runs as its user wrote it.
  local function plain(job_desc)
    pcall(function()
      local script = job_desc.script
      local own = text(script) and options.users_script(script)
      if own and own ~= script then
        job_desc.script = own
      end
    end)
    return slurm.SUCCESS
  end

  local vjobs = {}

  function vjobs.submit(job_desc, part_list, _)
    local names = partitions_of(job_desc.partition, part_list)
    if count_ours(names) == 0 then
      return plain(job_desc)
    end
    return guarded("job_submit", function()
      if config.broken then
        error(config.broken)
      end
      check_config(config)
      if #names > 1 then
        refuse("a job that %s can be submitted to one partition only, not to %s",
          config.platform == "native" and "may be paused" or "runs in VMs", job_desc.partition)
      end
      if config.platform == "native" then
        native.gate(job_desc, config)
        return
      end
      options.check(job_desc)
      local image = image_of(job_desc, config)
      local geometry = geometry_of(job_desc, config)
      check_limits(geometry, image, config)
      wrap(job_desc, geometry, image, config)
    end)
  end

  function vjobs.modify(job_desc, job_rec, _, modify_uid)
    local was_ours = count_ours(partitions_of(job_rec.partition)) > 0
    local moves = text(job_desc.partition) and job_desc.partition ~= job_rec.partition
    if not was_ours and not (moves and count_ours(partitions_of(job_desc.partition)) > 0) then
      return slurm.SUCCESS
    end
    local result = guarded("job_modify", function()
      if moves then
        refuse("a job cannot be moved into, out of or between partitions whose jobs %s: cancel it and submit it anew",
          config.platform == "native" and "may be paused" or "run in VMs")
      end
      if modify_uid ~= 0 and modify_uid ~= config.slurm_uid then
        check_changes(job_desc, job_rec, config)
      end
    end)
    -- scontrol shows the code's words only, not the message (Slurm 22.05): these fit a refusal best.
    return result == slurm.SUCCESS and result or (slurm.ESLURM_ACCESS_DENIED or slurm.ERROR)
  end

  return vjobs
end

return rmsplugin
