cd /work/wt/controller && CARGO_TARGET_DIR=/work/wt/ctl-target cargo build --release -p farhaul-tunnel --example controller 2>&1 | grep -E '^error' -A9
