#!/usr/bin/env python3
"""The simulator's TCP beside ns-3's, on the same scenarios.

Needs the `ns3` package (`python3 -m venv V && V/bin/pip install ns3`, then run this with V/bin/python) and
`cargo build --release -p farhaul-sim --example transfers`. Both send NewReno or SACK without the
other enhancements, from one segment, to a receiver that acknowledges every second one, on a link of 34.368 Mbit/s
with a drop-tail queue of 256,000 bytes. Writes out/sim-ns3.json and prints a table.

With loss there are two numbers of ours. On a loss ns-3 halves what its scoreboard believes under way, which the three
duplicates have left already (TcpSocketBase::EnterRecovery); RFC 5681 halves everything unacknowledged, and so do we. The
second number is with ns-3's rule, and says what else is different.
"""

import json
import os
import statistics
import subprocess
import sys

import cppyy
from ns import ns  # noqa: F401  (loads ns-3's libraries and headers)

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EXAMPLE = os.environ.get("TRANSFERS", os.path.join(ROOT, "target/release/examples/transfers"))
FREE = 1 << 26
# TCP, round trip in ms, loss in %, window, bytes, at the same time, seeds, tolerance
CELLS = [
    ("newreno", rtt_ms, 0, 32767, size, 1, 1, 0.03)
    for rtt_ms in (120, 380, 640)
    for size in (10_000, 100_000, 3_000_000)
] + [
    ("newreno", 120, 0, 32767, 1_000_000, 16, 1, 0.03),
    ("newreno", 380, 0, 32767, 1_000_000, 16, 1, 0.03),
    ("newreno", 640, 0, FREE, 100_000, 1, 1, 0.03),
    # So many that begin at one time overflow the queue in step: losses.
    ("newreno", 640, 0, 32767, 1_000_000, 50, 1, 0.15),
    ("newreno", 120, 0, 32767, 2_000_000, 50, 1, 0.15),
] + [
    (tcp, rtt_ms, loss, FREE, size, 1, 160, 0.15)
    for tcp in ("newreno", "sack")
    for rtt_ms, loss, size in ((40, 0.5, 4_000_000), (40, 1, 2_000_000), (120, 1, 1_000_000), (380, 0.3, 1_000_000))
]
# Compared are medians: some of ns-3's lossy runs stand still for minutes while its retransmission timer doubles on and
# on. Runs that take so many times the median are counted.
STALLED = 4

SCENARIO = r"""
#include <vector>
namespace beside {
using namespace ns3;
static std::vector<double> seconds;
static std::vector<uint64_t> received;
static uint64_t wanted;
static uint32_t unfinished;
void Received(uint32_t n, Ptr<const Packet> packet, const Address&) {
  received[n] += packet->GetSize();
  if (received[n] >= wanted && seconds[n] == 0) {
    seconds[n] = Simulator::Now().GetSeconds();
    if (--unfinished == 0) Simulator::Stop();
  }
}
void Configure(uint32_t window, bool sack, double rto_s) {
  auto type = [](const char* name) { return TypeIdValue(TypeId::LookupByName(name)); };
  Config::SetDefault("ns3::TcpL4Protocol::SocketType", type("ns3::TcpNewReno"));
  // Inflating the window by duplicates (RFC 6582) stands for what SACK says itself: with SACK it would count them twice.
  const char* recovery = sack ? "ns3::TcpPrrRecovery" : "ns3::TcpClassicRecovery";
  Config::SetDefault("ns3::TcpL4Protocol::RecoveryType", type(recovery));
  Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(sack));
  Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(true));
  Config::SetDefault("ns3::TcpSocketBase::WindowScaling", BooleanValue(window > 65535));
  Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(Seconds(rto_s)));
  Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
  Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(1));
  Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(2));
  Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(200)));
  Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1u << 26));
  Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(window));
}
std::vector<double> Transfers(double delay_s, double loss, uint32_t window, uint64_t bytes, uint32_t abreast,
                              bool sack, uint32_t seed) {
  RngSeedManager::SetSeed(1);
  RngSeedManager::SetRun(seed);
  Configure(window, sack, 2 * delay_s + 0.2);
  NodeContainer nodes;
  nodes.Create(2);
  PointToPointHelper link;
  link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(34368000)));
  link.SetChannelAttribute("Delay", TimeValue(Seconds(delay_s)));
  link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::BYTES, 256000)));
  NetDeviceContainer devices = link.Install(nodes);
  InternetStackHelper stack;
  stack.Install(nodes);
  Ipv4AddressHelper network;
  network.SetBase("10.1.1.0", "255.255.255.0");
  Ipv4InterfaceContainer interfaces = network.Assign(devices);
  TrafficControlHelper queues;
  queues.Uninstall(devices);
  if (loss > 0) {
    Ptr<RateErrorModel> errors = CreateObject<RateErrorModel>();
    errors->SetUnit(RateErrorModel::ERROR_UNIT_PACKET);
    errors->SetRate(loss);
    devices.Get(1)->SetAttribute("ReceiveErrorModel", PointerValue(errors));
  }
  wanted = bytes;
  unfinished = abreast;
  seconds.assign(abreast, 0);
  received.assign(abreast, 0);
  for (uint32_t n = 0; n < abreast; n++) {
    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), 5000 + n));
    ApplicationContainer sinks = sink.Install(nodes.Get(1));
    sinks.Get(0)->TraceConnectWithoutContext("Rx", MakeBoundCallback(&Received, n));
    BulkSendHelper source("ns3::TcpSocketFactory", InetSocketAddress(interfaces.GetAddress(1), 5000 + n));
    source.SetAttribute("MaxBytes", UintegerValue(bytes));
    sinks.Start(Seconds(0));
    source.Install(nodes.Get(0)).Start(Seconds(0));
  }
  Simulator::Stop(Seconds(3600));
  Simulator::Run();
  Simulator::Destroy();
  return seconds;
}
}
"""


def theirs(cell):
    tcp, rtt_ms, loss, window, size, abreast, seeds, _ = cell
    make = cppyy.gbl.beside.Transfers
    runs = [make(rtt_ms / 2000, loss / 100, window, size, abreast, tcp == "sack", seed) for seed in range(1, seeds + 1)]
    return [time_s for run in runs for time_s in run]


def ours(cell, rule=""):
    tcp, rtt_ms, loss, window, size, abreast, seeds, _ = cell
    lossy = " forward loss %s%% backward loss 0%%" % loss if loss else ""
    link = "rate 34.368mbit delay %sms queue 256000b%s" % (rtt_ms / 2, lossy)
    words = [tcp + rule, link, window, size, seeds if loss else 1, abreast, abreast]
    done = subprocess.run([EXAMPLE, *map(str, words)], check=True, text=True, capture_output=True)
    return [float(line) for line in done.stdout.split()]


def measure(cell):
    tcp, rtt_ms, loss, window, size, abreast, _, tolerance = cell
    row = {
        "tcp": tcp, "rtt_ms": rtt_ms, "loss_percent": loss, "window_bytes": None if window == FREE else window,
        "bytes": size, "abreast": abreast,
    }
    measured = [("ns3", theirs(cell)), ("simulated", ours(cell))]
    if loss:
        measured.append(("same_rule", ours(cell, "-pipe")))
    for who, times in measured:
        median = statistics.median(times)
        row[who + "_median_s"] = median
        row[who + "_mean_s"] = statistics.mean(times)
        row[who + "_stalled"] = sum(time > STALLED * median for time in times) / len(times)
    row["error"] = row["simulated_median_s"] / row["ns3_median_s"] - 1
    if loss:
        row["same_rule_error"] = row["same_rule_median_s"] / row["ns3_median_s"] - 1
    row["tolerance"] = tolerance
    row["ok"] = abs(row["error"]) <= tolerance
    return row


def main():
    cppyy.cppdef(SCENARIO)
    rows = []
    for cell in CELLS:
        row = measure(cell)
        rows.append(row)
        print("%-8s %4d ms %4s %% window %6s %8d B x%-3d ns-3 %8.3f s (%2.0f %% stalled)  simulated %8.3f s (%2.0f %%)  %+5.1f %% (%.0f %%)  same rule %+5.1f %%  %s" % (
            row["tcp"], row["rtt_ms"], row["loss_percent"], row["window_bytes"] or "free", row["bytes"], row["abreast"],
            row["ns3_median_s"], 100 * row["ns3_stalled"], row["simulated_median_s"], 100 * row["simulated_stalled"],
            100 * row["error"], 100 * row["tolerance"], 100 * row.get("same_rule_error", row["error"]),
            "ok" if row["ok"] else "OUTSIDE"), flush=True)
    os.makedirs(os.path.join(ROOT, "out"), exist_ok=True)
    with open(os.path.join(ROOT, "out/sim-ns3.json"), "w", encoding="ascii") as file:
        json.dump(rows, file, indent=1)
        file.write("\n")
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
