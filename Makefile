# A list of verbs; what each does stands in scripts/VERB.sh. `make` alone explains them.
.PHONY: help demo test check calibrate bench-campaign bench-cut bench-kill bench-reduce bench-reduce-live bench-tunnel bench-tunnel-live probe sim smb-verdicts study setup clean
help:      ; @awk -F'## ' '/^[a-z-]+: /{split($$1, v, ":"); printf "  make %-12s %s\n", v[1], $$NF}' Makefile ## this list
demo:      ; @scripts/demo.sh      ## real servers and clients across an emulated WAN, without and with gateways (REPEAT=3: medians)
test:      ; @scripts/test.sh      ## set up, build, run every test; needs root or sudo
check:     ; @scripts/check.sh     ## format, lints, layering, documentation
calibrate: ; @scripts/calibrate.sh ## how true the link emulator is, beside the published tables
bench-campaign: ; @ONLY=campaign scripts/probe.sh --out out/campaign ## 8755 runs of the circuit tester back to back, and the memory of both ends
bench-cut: ; @scripts/bench-cut.sh ## the link cut for a minute under 50 transfers, also with another address or port afterwards
bench-kill: ; @scripts/bench-kill.sh ## kill -9 of gateways at many moments of their work on disk; where they fell (KILLS=n)
bench-reduce: ; @scripts/bench-reduce.sh ## what a second version costs on the wire and in CPU time, beside zstd --patch-from (ONLY=text MEGABYTES=n)
bench-reduce-live: ; @scripts/bench-reduce-live.sh ## a disk image over two links by HTTP, FTP and CIFS, beside F5's figures (ONLY=text)
bench-tunnel: ; @scripts/bench-tunnel.sh ## the tunnel over 120 links in virtual time (ONLY=pattern SEEDS=n JOBS=n)
bench-tunnel-live: ; @scripts/bench-tunnel-live.sh ## the tunnel on real packets beside cubic and BBR (ONLY=text)
probe:     ; @scripts/probe.sh     ## how often the circuit tester names a planted fault, windows beside window / RTT, rates beside iperf3's, 8755 runs (ONLY=text|plants|memo|windows|iperf3|campaign, RUNS=n, SEED=n, JOBS=n at once); goes on where it was stopped
sim:       ; @scripts/sim.sh       ## HTTP over long links, simulated: the Waikato study, reduced (JOBS=n)
smb-verdicts: ; @scripts/smb-verdicts.sh ## Samba's own tests of SMB, directly and through gateways: the same verdicts (ONLY=text JOBS=n)
study:     ; @scripts/study.sh     ## a plan of real SMB clients over many links, beside the study of 2006 (PLAN=wx2006-cifs: 1 h 35, with JOBS=4 an hour; RESUME=1 ONLY=text JOBS=n)
setup:     ; @scripts/setup.sh     ## install the system packages that are missing
clean:     ; @scripts/clean.sh     ## remove leftover labs, build products and results
