//! NFQUEUE by way of xtables, for kernels built without `nft_queue`.
//!
//! The `nft` program cannot write such a rule, the kernel takes it all the
//! same: one nftables rule whose only expression is xtables' target NFQUEUE.
//! Layout: linux/netfilter/nf_tables.h, nf_tables_compat.h, xt_NFQUEUE.h.

use std::io;

use super::nfqueue::{Message, acknowledged, attribute, open};

const NESTED: u16 = 0x8000;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const SUBSYSTEM_NFTABLES: u16 = 10;
const NEW_RULE: u16 = SUBSYSTEM_NFTABLES << 8 | 6;
/// NLM_F_REQUEST, NLM_F_ACK, NLM_F_CREATE, NLM_F_APPEND.
const REQUEST: u16 = 0x1;
const APPEND: u16 = REQUEST | 0x4 | 0x400 | 0x800;
const FAMILY_INET: u8 = 1;
/// Packets pass when nobody listens.
const FLAG_BYPASS: u16 = 1;
const TARGET_REVISION: u32 = 3;

/// Appends `queue flags bypass to QUEUE` to a chain of an `inet` table.
pub(super) fn append_queue_rule(table: &str, chain: &str, queue: u16) -> io::Result<()> {
    let socket = open()?;
    let mut batch = Message::new(BATCH_BEGIN, REQUEST, 0, SUBSYSTEM_NFTABLES).finish();
    batch.extend(rule(table, chain, queue));
    batch.extend(Message::new(BATCH_END, REQUEST, 0, SUBSYSTEM_NFTABLES).finish());
    socket.send(&batch)?;
    acknowledged(&socket)
}

fn rule(table: &str, chain: &str, queue: u16) -> Vec<u8> {
    // struct xt_NFQ_info_v3: number, how many, flags; padded to eight bytes.
    let mut info = Vec::new();
    for word in [queue, 1, FLAG_BYPASS, 0] {
        info.extend(word.to_ne_bytes());
    }
    let target = [
        attribute(1, b"NFQUEUE\0"),
        attribute(2, &TARGET_REVISION.to_be_bytes()),
        attribute(3, &info),
    ]
    .concat();
    let expression = [attribute(1, b"target\0"), attribute(2 | NESTED, &target)].concat();
    let expressions = attribute(1 | NESTED, &expression);

    let mut message = Message::new(NEW_RULE, APPEND, FAMILY_INET, 0);
    message.attribute(1, &c_string(table));
    message.attribute(2, &c_string(chain));
    message.attribute(4 | NESTED, &expressions);
    message.finish()
}

fn c_string(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes
}
