//! `farhaul lab`: a WAN of namespaces on this machine, by hand.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, Subcommand};
use farhaul_lab::demo::{self, DemoOptions};
use farhaul_lab::gateways::GatewayOverrides;
use farhaul_lab::{Lab, LabError, LabOptions, require_root, sandbox};
use serde_json::{Value, json};
use tokio::signal::unix::SignalKind;

use crate::failure::Failure;
use crate::print;

/// `farhaul lab`.
#[derive(Debug, Args)]
pub(crate) struct LabCommand {
    #[command(subcommand)]
    verb: LabVerb,
}

#[derive(Debug, Subcommand)]
enum LabVerb {
    /// Build client, gateways, link and server as network namespaces.
    #[command(
        after_help = "example: farhaul lab up --link \"oc1 delay 100ms loss 1%\"\n         \
                            farhaul lab exec client -- curl http://10.2.0.2/"
    )]
    Up(Up),
    /// End a lab and everything that runs in it.
    Down(Named),
    /// Run a program in one of a lab's namespaces.
    Exec(Exec),
    /// Show namespaces, addresses and processes of a lab.
    Status(Status),
    /// List the labs that are up.
    List(List),
    /// Fetch files across an emulated WAN, without and with gateways.
    Demo(Demo),
    /// Measure how true the link emulator is.
    Calibrate(crate::calibrate_command::CalibrateCommand),
    /// Measure how often the circuit tester names a planted fault.
    Probe(crate::accuracy_command::AccuracyCommand),
    /// Measure the tunnel beside the kernel's own controllers on the same links.
    Tunnel(crate::tunnel_command::TunnelCommand),
    /// Measure what reduction does to a disk image fetched by HTTP, FTP and CIFS.
    Reduce(crate::fetches_command::FetchesCommand),
    /// Run a plan: real clients and servers over many links, without and with gateways.
    #[command(after_help = "example: farhaul lab run plans/quick.toml\n         \
                            farhaul lab report out/quick.json -o report.html")]
    Run(crate::study_command::Run),
    /// Show documents of measurements as one page of tables and charts.
    Report(crate::study_command::Report),
    /// Remove what crashed runs left behind.
    Sweep,
}

#[derive(Debug, Args)]
struct Named {
    /// Which lab.
    #[arg(long, default_value = "lab")]
    name: String,
}

#[derive(Debug, Args)]
struct Up {
    #[command(flatten)]
    lab: Named,
    /// The link in the middle, as `farhaul link` takes it.
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "oc1 delay 100ms loss 1%",
        allow_hyphen_values = true
    )]
    link: String,
    /// Connect the sites by a plain bridge, without emulator.
    #[arg(long, conflicts_with = "link")]
    no_link: bool,
    /// Seed of the link's random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// TCP congestion control of the hosts.
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion_control: String,
    /// Start a gateway at each site, too.
    #[arg(long)]
    gateways: bool,
}

#[derive(Debug, Args)]
struct Exec {
    #[command(flatten)]
    lab: Named,
    /// client, gwa, wan, gwb or server.
    role: String,
    /// Program and arguments.
    #[arg(required = true, last = true)]
    words: Vec<String>,
}

#[derive(Debug, Args)]
struct Status {
    #[command(flatten)]
    lab: Named,
    /// For programs.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct List {
    /// For programs.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Demo {
    /// Name of its lab.
    #[arg(long, default_value = "demo")]
    name: String,
    /// Fetches of each kind; more than one gives medians.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Seed of the link's losses.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Folder of demo.json.
    #[arg(long, value_name = "FOLDER", default_value = "out")]
    out: PathBuf,
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        match error {
            LabError::BadName { .. } | LabError::BadLink(_) => Self::usage(error),
            _ => Self::failed(error),
        }
    }
}

impl LabCommand {
    /// Runs it.
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.verb {
            LabVerb::Up(command) => command.run(),
            LabVerb::Down(command) => command.down(),
            LabVerb::Exec(command) => command.run(),
            LabVerb::Status(command) => command.run(),
            LabVerb::List(command) => command.run(),
            LabVerb::Demo(command) => command.run(),
            LabVerb::Calibrate(command) => command.run(program()?, stop_on_signal()?),
            LabVerb::Probe(command) => command.run(program()?, stop_on_signal()?),
            LabVerb::Tunnel(command) => command.run(program()?, stop_on_signal()?),
            LabVerb::Reduce(command) => command.run(program()?, stop_on_signal()?),
            LabVerb::Run(command) => command.run(program()?, stop_on_signal()?),
            LabVerb::Report(command) => command.run(),
            LabVerb::Sweep => sweep(),
        }
    }
}

impl Demo {
    fn run(self) -> Result<(), Failure> {
        let options = DemoOptions {
            name: self.name,
            program: program()?,
            repeat: self.repeat,
            seed: self.seed,
            out: self.out,
            stop: stop_on_signal()?,
        };
        let demo = demo::run(&options)?;
        print::out(&demo.text)?;
        match demo.measurement.is_ok() {
            true => Ok(()),
            false => Err(Failure::Reported),
        }
    }
}

/// Ctrl-C, hang-up and termination set the flag instead of ending the process,
/// so that whatever runs can clean up.
pub(crate) fn stop_on_signal() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let trouble =
        |error: std::io::Error| Failure::failed(format!("cannot wait for signals: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(trouble)?;
    let register = |kind| {
        let _inside = runtime.enter();
        tokio::signal::unix::signal(kind).map_err(trouble)
    };
    let mut interrupt = register(SignalKind::interrupt())?;
    let mut terminate = register(SignalKind::terminate())?;
    let mut hang_up = register(SignalKind::hangup())?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hang_up.recv() => {}
            }
            flag.store(true, Ordering::Relaxed);
            // Later signals are taken as well: cleaning up is under way.
            std::future::pending::<()>().await;
        });
    });
    Ok(stop)
}

fn sweep() -> Result<(), Failure> {
    for name in sandbox::sweep()? {
        print::line(&format!("removed lab {name}"))?;
    }
    Ok(())
}

/// This very program, which the lab starts as emulator and gateway.
fn program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::failed(format!("cannot find the farhaul program: {error}")))
}

impl Up {
    fn run(self) -> Result<(), Failure> {
        let mut options = LabOptions::new(&self.lab.name, program()?);
        options.seed = self.seed;
        options.congestion_control = self.congestion_control;
        options.link = (!self.no_link).then_some(self.link);
        let mut lab = Lab::up(&options)?;
        if self.gateways {
            lab.gateways_up(&GatewayOverrides::default())?;
        }
        let folder = lab.sandbox().folder();
        lab.keep()?;
        let name = match self.lab.name.as_str() {
            "lab" => String::new(),
            name => format!(" --name {name}"),
        };
        print::out(&format!(
            "lab {} is up; its logs are in {}\n\
             client 10.1.0.2 fdfa:0:1::2, server 10.2.0.2 fdfa:0:2::2\n\
             try:   farhaul lab exec{name} client -- ping -c 3 10.2.0.2\n\
             end:   farhaul lab down{name}\n",
            self.lab.name,
            folder.display()
        ))
    }
}

impl Named {
    fn down(self) -> Result<(), Failure> {
        require_root("`farhaul lab down`")?;
        Lab::open(&self.name, program()?)?.down()?;
        Ok(())
    }
}

impl Exec {
    fn run(self) -> Result<(), Failure> {
        require_root("`farhaul lab exec`")?;
        let lab = Lab::open(&self.lab.name, program()?)?;
        let namespace = lab.namespace(&self.role)?;
        let Some((first, rest)) = self.words.split_first() else {
            return Err(Failure::usage(
                "no program given: farhaul lab exec ROLE -- PROGRAM ...",
            ));
        };
        // Replaces this process, so status and signals are the program's own.
        let error = namespace.command(first).args(rest).exec();
        Err(Failure::failed(format!(
            "cannot run `ip netns exec`: {error}"
        )))
    }
}

impl Status {
    fn run(self) -> Result<(), Failure> {
        let lab = Lab::open(&self.lab.name, program()?)?;
        let status = describe(&lab);
        if self.json {
            return print::json(&status);
        }
        print::out(&status_text(&status))
    }
}

fn describe(lab: &Lab) -> Value {
    let state = lab.sandbox().state();
    let processes: Vec<_> = state
        .processes
        .iter()
        .map(|record| {
            json!({
                "role": record.role,
                "pid": record.process.pid,
                "alive": record.process.is_alive(),
                "log": lab.sandbox().log_path(&record.role),
            })
        })
        .collect();
    let namespaces: Vec<_> = state
        .namespaces
        .iter()
        .map(|record| json!({"role": record.role, "namespace": record.name}))
        .collect();
    json!({
        "name": lab.sandbox().name(),
        "folder": lab.sandbox().folder(),
        "link": state.notes.get("link"),
        "seed": state.notes.get("seed"),
        "namespaces": namespaces,
        "processes": processes,
    })
}

fn status_text(status: &Value) -> String {
    let plain = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let link = match &status["link"] {
        Value::Null => "none (plain bridge)".to_owned(),
        words => format!("{} (seed {})", plain(words), status["seed"]),
    };
    let mut text = format!("lab {}   link {link}\n", plain(&status["name"]));
    for entry in status["namespaces"].as_array().into_iter().flatten() {
        text += &format!(
            "  {:<8} {}\n",
            plain(&entry["role"]),
            plain(&entry["namespace"])
        );
    }
    for entry in status["processes"].as_array().into_iter().flatten() {
        let state = if entry["alive"] == true {
            "runs"
        } else {
            "ENDED"
        };
        let (role, pid, log) = (plain(&entry["role"]), &entry["pid"], plain(&entry["log"]));
        text += &format!("  {role:<10} pid {pid:<8} {state:<6} {log}\n");
    }
    text
}

impl List {
    fn run(self) -> Result<(), Failure> {
        let names = sandbox::list()?;
        if self.json {
            return print::json(&json!(names));
        }
        match names.is_empty() {
            true => print::out("no lab is up; `farhaul lab up` makes one\n"),
            false => print::out(&format!("{}\n", names.join("\n"))),
        }
    }
}
