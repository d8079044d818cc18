//! What clients do now and then.

use farhaul_optimise::smb::netbios::packet;
use farhaul_optimise::smb::smb1::header::{
    FLUSH, LOCKING_ANDX, LOGOFF_ANDX, MARK, TREE_DISCONNECT, WRITE_ANDX, chain_end, emit_block,
};
use farhaul_optimise::smb::smb2::header::Command;
use farhaul_optimise::smb::smb2::transfer::emit_empty;

use super::{Client, Step};

impl Client {
    pub(super) fn odd_step(&mut self, step: Step) {
        match step {
            Step::Glance { name } => self.glance(name),
            Step::List => self.list(),
            Step::Browse { name } => self.browse(name),
            Step::Lock => self.lock(),
            Step::FlushAll => {
                self.cifs_send(Command::Flush, FLUSH, |message| {
                    emit_block(&[0xff, 0xff], &[], message);
                });
            }
            Step::Stutter => {
                let cut = [&MARK[..], &[WRITE_ANDX, 0, 0, 0]].concat();
                self.output.extend_from_slice(&packet(&cut));
            }
            Step::SetEnd { bytes, behind } => self.set_end(bytes, behind),
            Step::Leave => self.leave(),
            Step::LogOff => self.log_off(),
            other => panic!("{other:?}"),
        }
    }

    /// MS-CIFS 2.2.4.32.1: one range.
    fn lock(&mut self) {
        let file = self.file.unwrap().volatile as u16;
        let words = [&chain_end()[..], &file.to_le_bytes(), &[0; 8], &[1, 0]].concat();
        let range = [[1, 0, 0xff], [0xff, 0xff, 0x7f], [1, 0, 0]].concat();
        self.cifs_send(Command::Lock, LOCKING_ANDX, |message| {
            emit_block(&words, &[&range[..], &[0]].concat(), message);
        });
    }

    fn log_off(&mut self) {
        match self.cifs {
            Some(_) => {
                self.cifs_send(Command::Logoff, LOGOFF_ANDX, |message| {
                    emit_block(&chain_end(), &[], message);
                });
            }
            None => self.send(Command::Logoff, None, emit_empty),
        }
    }

    /// There is no session: what comes next begins with one.
    pub(super) fn logged_off(&mut self) {
        self.greeting = 1;
        self.cifs = self.cifs.map(|_| (0, 0));
    }

    fn leave(&mut self) {
        match self.cifs {
            Some(_) => {
                self.cifs_send(Command::TreeDisconnect, TREE_DISCONNECT, |message| {
                    emit_block(&[], &[], message);
                });
            }
            None => self.send(Command::TreeDisconnect, None, emit_empty),
        }
    }
}
