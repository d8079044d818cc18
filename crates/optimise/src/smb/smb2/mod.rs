//! SMB2 and SMB3 on the wire (MS-SMB2): what a message says, not what to do about it.
//!
//! | file | messages |
//! |---|---|
//! | `header` | the header, compounded messages, fields written anew in place |
//! | `connect` | NEGOTIATE, SESSION_SETUP, TREE_CONNECT |
//! | `open` | CREATE with leases, CLOSE |
//! | `query` | QUERY_DIRECTORY, QUERY_INFO |
//! | `transfer` | READ, WRITE, FLUSH, errors |
//! | `breaks` | oplock and lease breaks |
//!
//! Every `parse` takes a message from its header on, without what is compounded behind it, and checks all bounds;
//! every `emit` appends a body behind a header. `parse(emit(x)) = x`.

pub mod breaks;
pub mod connect;
pub mod header;
pub mod open;
pub mod query;
pub mod transfer;
