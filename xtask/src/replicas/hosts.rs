//! Three hosts in network namespaces, of which one is cut off in the middle of a training. Touches nothing of the machine's own
//! network.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::folder::{check_same, saved_step, tensors};
use super::job::{Job, check_gone, end_left, signal};
use super::{Bench, Seen, seconds, text};
use crate::apt;
use crate::command::succeeds;

const STALL: Duration = Duration::from_secs(3);
const SLACK: Duration = Duration::from_secs(5);

const HOSTS: usize = 3;

/// A switch and hosts that are connected to it; taken down when dropped.
struct Hosts {
    /// Of this process, so that others' stay as they are.
    name: String,
}

fn ip(arguments: &str) -> Result<()> {
    let done = Command::new("ip").args(arguments.split(' ')).output().context("ip")?;
    if !done.status.success() {
        bail!("ip {arguments}: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(())
}

impl Hosts {
    fn new() -> Result<Hosts> {
        let hosts = Hosts { name: format!("mf{}", std::process::id()) };
        let switch = hosts.switch();
        ip(&format!("netns add {switch}"))?;
        ip(&format!("-n {switch} link add br0 type bridge"))?;
        ip(&format!("-n {switch} link set br0 up"))?;
        for i in 1..=HOSTS {
            let host = hosts.host(i);
            ip(&format!("netns add {host}"))?;
            ip(&format!("-n {host} link set lo up"))?;
            ip(&format!("link add eth0 netns {host} type veth peer name p{i} netns {switch}"))?;
            ip(&format!("-n {switch} link set p{i} master br0 up"))?;
            ip(&format!("-n {host} addr add 10.77.0.{i}/24 dev eth0"))?;
            ip(&format!("-n {host} link set eth0 up"))?;
        }
        Ok(hosts)
    }

    fn switch(&self) -> String {
        format!("{}s", self.name)
    }

    fn host(&self, i: usize) -> String {
        format!("{}h{i}", self.name)
    }

    fn cut(&self, i: usize) -> Result<()> {
        ip(&format!("-n {} link set p{i} down", self.switch()))
    }

    fn connect(&self, i: usize) -> Result<()> {
        ip(&format!("-n {} link set p{i} up", self.switch()))
    }

    /// Ends whatever of a launcher was cut off and waits for ever.
    fn end_processes(&self, i: usize) {
        let pids = Command::new("ip").args(["netns", "pids", &self.host(i)]).output();
        let pids = pids.map_or(String::new(), |pids| String::from_utf8_lossy(&pids.stdout).into_owned());
        for pid in pids.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            // It may have ended by itself.
            let _ = signal("KILL", pid);
        }
    }

    /// What a launcher has in place of ssh.
    fn agent(&self, folder: &Path) -> Result<PathBuf> {
        let path = folder.join("agent.sh");
        let script = format!(
            "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nhost=$1; shift; ns={}h${{host##*.}}\n\
             exec ip netns exec $ns unshare --uts sh -c \"hostname $ns; exec $*\"\n",
            self.name
        );
        fs::write(&path, script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(path)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for i in 1..=HOSTS {
            self.end_processes(i);
            // Where it was never made there is nothing to take down.
            let _ = ip(&format!("netns del {}", self.host(i)));
        }
        let _ = ip(&format!("netns del {}", self.switch()));
    }
}

pub fn cut(bench: &Bench) -> Seen {
    if !succeeds(Command::new("ip").arg("-V"))
        && let Err(reason) = apt::install(&["iproute2"])?
    {
        return Ok(format!("not run, because there is no ip, and {reason}"));
    }
    let hosts = match Hosts::new() {
        Ok(hosts) => hosts,
        Err(reason) => return Ok(format!("not run, because no network namespace can be made: {reason:#}")),
    };
    let folder = bench.folder("hosts")?;
    let seen = cut_off(bench, &hosts, &folder);
    end_left(&folder);
    seen
}

fn cut_off(bench: &Bench, hosts: &Hosts, folder: &Path) -> Seen {
    let agent = text(&hosts.agent(folder)?);
    let run = folder.join("run");
    let file = bench.write("cut.toml", "[train]\nsave_every = 5\n[replicas]\nlanes = 4\n")?;
    let job_command = if bench.is_open_mpi() {
        format!(
            "mpirun.openmpi {} --mca plm_rsh_agent {agent} --mca btl tcp,self --mca pml ob1 --mca btl_tcp_if_include \
             10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 --mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1 \
             --mca oob_tcp_keepalive_probes 3 --host 10.77.0.1:1,10.77.0.2:1,10.77.0.3:1",
            bench.library.options.join(" ")
        )
    } else {
        format!(
            "env UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 mpirun.mpich -launcher ssh -launcher-exec {agent} -iface eth0 \
             -hosts 10.77.0.1,10.77.0.2,10.77.0.3"
        )
    };
    let first = hosts.host(1);
    let script = format!(
        "hostname {first}; exec {job_command} -n 3 {} train {file} --steps 1000000 --stall 3s --out {}",
        bench.program.display(),
        run.display()
    );
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &first, "unshare", "--uts", "sh", "-c", &script]).envs(crate::mpi::ROOT);
    let mut job = Job::start(command, folder)?;
    job.wait_until("a checkpoint", |job| {
        saved_step(&run).is_some_and(|step| step > 0) && job.processes().len() == HOSTS
    })?;
    hosts.cut(HOSTS)?;
    let since = Instant::now();
    // The survivors, and whoever was cut off, end by themselves; what the launcher makes of it is its own.
    while !super::job::processes(folder).is_empty() {
        if since.elapsed() > STALL + SLACK {
            bail!("{:?} are left {} after the cut", super::job::processes(folder), seconds(since.elapsed()));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let gone = since.elapsed();
    if !bench.is_open_mpi() {
        // Its launcher waits for the part of it that was cut off.
        hosts.connect(HOSTS)?;
        hosts.end_processes(HOSTS);
    }
    let ended = job.end(Duration::from_secs(30))?;
    check_gone(folder, Duration::ZERO)?;
    let errors: Vec<&str> = ended.errors().into_iter().filter(|e| e.contains("replica 2 did not come")).collect();
    if errors.len() != 1 {
        bail!("replica 2 is named {} times:\n{}", errors.len(), ended.stderr);
    }
    let steps = (saved_step(&run).context("nothing is saved")? + 5).to_string();
    bench.run_alone(folder, &["train", "--resume", &text(&run), "--steps", &steps])?.check_passed()?;
    let expected = bench.trained_alone(&[&file, "--steps", &steps])?;
    check_same(&tensors(&run)?, &expected)?;
    let code = ended.code.map_or("a signal".into(), |code| code.to_string());
    Ok(format!(
        "all processes gone {} after the cut, launcher's code {code} after {}; replica 2 named; same at step {steps}",
        seconds(gone),
        seconds(since.elapsed())
    ))
}
