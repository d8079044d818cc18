//! SMB1 on the wire (MS-CIFS, MS-SMB), dialect NT LM 0.12: what a message says, not what to do about it.
//!
//! | file | what |
//! |---|---|
//! | `header` | the header, the blocks of words and bytes behind it, fields written anew in place |
//! | `connect` | NEGOTIATE, SESSION_SETUP_ANDX |
//! | `open` | NT_CREATE_ANDX, CLOSE, oplock breaks by LOCKING_ANDX |
//! | `transfer` | READ_ANDX, WRITE_ANDX, errors |
//!
//! A message is a header and one or several blocks, chained by their first words (AndX). Where a block's bytes are cut
//! short, as in the beginning of a long message, what is there can still be read.

pub mod connect;
pub mod header;
pub mod open;
pub mod transfer;

#[cfg(test)]
mod tests {
    use super::connect::{NT_LM, NegotiateRequest, NegotiateResponse, SessionSetupRequest};
    use super::header::{
        FLAG2_SIGNED, Header, READ_ANDX, WRITE_ANDX, blocks, chain_end, emit_block, first_block,
        lone_block, set_multiplex,
    };
    use super::open::{
        CloseRequest, LEFT_II, LockingRequest, NtCreateRequest, NtCreateResponse, OPLOCK_BATCH,
        set_create_flags, set_create_oplock,
    };
    use super::transfer::{
        ReadHead, ReadRequest, WriteHead, WriteResponse, emit_read_response, emit_write_request,
        error,
    };
    use crate::smb::error::WireError;

    fn header(command: u8) -> Header {
        Header {
            command,
            status: 0,
            flags: 0x18,
            flags2: 0xc007,
            process_high: 1,
            signature: [0; 8],
            tree: 2,
            process: 0xfeff,
            user: 3,
            multiplex: 0x140,
        }
    }

    fn message(command: u8, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut message = Vec::new();
        header(command).emit(&mut message);
        body(&mut message);
        message
    }

    fn create() -> NtCreateRequest {
        NtCreateRequest {
            flags: 6,
            access: 0x12_0089,
            share: 7,
            disposition: 1,
            options: 0x40,
            name: b"\0f\0".to_vec(),
        }
    }

    fn opened() -> NtCreateResponse {
        NtCreateResponse {
            oplock: OPLOCK_BATCH,
            file: 0x4001,
            size_bytes: 5 << 32,
            resource: 0,
            is_directory: false,
        }
    }

    fn read() -> ReadRequest {
        ReadRequest {
            file: 7,
            offset: 0x1_2345_6789,
            length: 0x1_f000,
            length_min: 9,
            remaining: 0,
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        let dialects = vec![b"LANMAN1.0".to_vec(), NT_LM.to_vec()];
        let negotiate = NegotiateRequest { dialects };
        let said = message(0x72, |message| negotiate.emit(message));
        let block = lone_block(&said).unwrap();
        assert_eq!(NegotiateRequest::parse(&block), Ok(negotiate));
        let negotiated = NegotiateResponse {
            dialect: 1,
            security_mode: 3,
            requests_max: 50,
            buffer_bytes_max: 16_644,
            capabilities: 0x8000_c0fd,
            security: vec![1, 2],
        };
        let said = message(0x72, |message| negotiated.emit(message));
        let block = lone_block(&said).unwrap();
        assert_eq!(NegotiateResponse::parse(&block), Ok(negotiated));
        let setup = SessionSetupRequest {
            buffer_bytes_max: 4356,
            capabilities: 0x8000_00d4,
            security: vec![5; 9],
        };
        let said = message(0x73, |message| setup.emit(message));
        let block = lone_block(&said).unwrap();
        assert_eq!(SessionSetupRequest::parse(&block), Ok(setup));
    }

    #[test]
    fn what_is_written_of_files_can_be_read() {
        let said = message(0xa2, |message| create().emit(message));
        assert_eq!(Header::parse(&said), Ok(header(0xa2)));
        let block = lone_block(&said).unwrap();
        assert_eq!(NtCreateRequest::parse(&block), Ok(create()));
        let said = message(0xa2, |message| opened().emit(message));
        let block = lone_block(&said).unwrap();
        assert_eq!(NtCreateResponse::parse(&block), Ok(opened()));
        let said = message(READ_ANDX, |message| read().emit(message));
        let block = lone_block(&said).unwrap();
        assert_eq!(ReadRequest::parse(&block), Ok(read()));
        let close = CloseRequest {
            file: 7,
            modified: 8,
        };
        let said = message(4, |message| close.emit(message));
        assert_eq!(CloseRequest::parse(&lone_block(&said).unwrap()), Ok(close));
        let release = LockingRequest::release(9, LEFT_II);
        let said = message(0x24, |message| release.emit(message));
        let block = lone_block(&said).unwrap();
        assert_eq!(LockingRequest::parse(&block), Ok(release));
    }

    #[test]
    fn data_is_where_the_words_say() {
        for length in [0, 1, 61_440, 65_535, 65_536, 130_000] {
            let data: Vec<u8> = (0..length).map(|at: u32| at as u8).collect();
            let said = message(READ_ANDX, |message| emit_read_response(&data, message));
            let head = ReadHead::parse(&lone_block(&said).unwrap()).unwrap();
            assert_eq!(head.data(&said).unwrap(), data);
            let said = message(WRITE_ANDX, |message| {
                emit_write_request(7, 6 << 32, 1, &data, message);
            });
            let head = WriteHead::parse(&lone_block(&said).unwrap()).unwrap();
            assert_eq!(head.data(&said).unwrap(), data);
            assert_eq!((head.file, head.offset, head.mode), (7, 6 << 32, 1));
            let response = WriteResponse { count: length };
            let said = message(WRITE_ANDX, |message| response.emit(message));
            let block = lone_block(&said).unwrap();
            assert_eq!(WriteResponse::parse(&block), Ok(response));
        }
    }

    #[test]
    fn fields_are_written_anew_in_their_places() {
        let mut said = message(0xa2, |message| create().emit(message));
        set_create_flags(&mut said, 0, 0x16);
        set_multiplex(&mut said, 0, 0xfffe);
        let block = lone_block(&said).unwrap();
        let expected = NtCreateRequest {
            flags: 0x16,
            ..create()
        };
        assert_eq!(NtCreateRequest::parse(&block), Ok(expected));
        assert_eq!(Header::parse(&said).unwrap().multiplex, 0xfffe);
        let mut said = message(0xa2, |message| opened().emit(message));
        set_create_oplock(&mut said, 0, 0);
        let block = lone_block(&said).unwrap();
        let expected = NtCreateResponse {
            oplock: 0,
            ..opened()
        };
        assert_eq!(NtCreateResponse::parse(&block), Ok(expected));
    }

    /// Samba counts 42 words in an extended answer and sends 50 (MS-SMB 2.2.4.9.2).
    #[test]
    fn words_that_are_not_counted_do_no_harm() {
        let plain = message(0xa2, |message| opened().emit(message));
        let mut words = first_block(&plain).unwrap().words.to_vec();
        words.resize(100, 0xee);
        let mut said = message(0xa2, |message| emit_block(&words, &[], message));
        said[32] = 42;
        let block = first_block(&said).unwrap();
        assert_eq!(NtCreateResponse::parse(&block), Ok(opened()));
    }

    #[test]
    fn chains_go_forward() {
        let mut said = message(READ_ANDX, |message| read().emit(message));
        let (first_at, next_at) = (32, said.len());
        said[first_at + 1] = 4;
        said[first_at + 3..first_at + 5].copy_from_slice(&(next_at as u16).to_le_bytes());
        CloseRequest {
            file: 7,
            modified: 0,
        }
        .emit(&mut said);
        let commands: Vec<u8> = blocks(&said).unwrap().iter().map(|it| it.command).collect();
        assert_eq!(commands, [READ_ANDX, 4]);
        assert_eq!(lone_block(&said), Err(WireError::Compound));
        said[first_at + 3..first_at + 5].copy_from_slice(&32u16.to_le_bytes());
        assert_eq!(blocks(&said), Err(WireError::Compound));
    }

    #[test]
    fn a_flag_alone_is_no_signature() {
        let able = Header {
            flags2: FLAG2_SIGNED,
            ..header(READ_ANDX)
        };
        assert!(!able.is_signed());
        let signed = Header {
            signature: [1; 8],
            ..able
        };
        assert!(signed.is_signed() && !signed.response(0).is_signed());
        let failed = error(&signed.response(0), 5);
        assert_eq!(Header::parse(&failed).unwrap().status, 5);
        assert!(lone_block(&failed).unwrap().words.is_empty());
    }

    /// Every message, cut off anywhere and with any byte changed.
    #[test]
    fn invariant_6_damaged_messages_do_not_panic() {
        let empty = |message: &mut Vec<u8>| emit_block(&chain_end(), &[], message);
        let whole = [
            message(0xa2, |message| create().emit(message)),
            message(0xa2, |message| opened().emit(message)),
            message(READ_ANDX, |message| read().emit(message)),
            message(READ_ANDX, |message| emit_read_response(&[1; 9], message)),
            message(WRITE_ANDX, |message| {
                emit_write_request(1, 2, 0, &[1; 9], message);
            }),
            message(0x24, |message| {
                LockingRequest::release(9, LEFT_II).emit(message);
            }),
            message(0x75, empty),
            message(0x32, |message| emit_block(&[0; 30], &[0; 4], message)),
            message(0xa0, |message| emit_block(&[0; 38], &[0; 4], message)),
        ];
        for said in whole {
            for at in 0..said.len() {
                read_all(said.get(..at).unwrap());
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut damaged = said.clone();
                    damaged[at] = value;
                    read_all(&damaged);
                }
            }
        }
    }

    fn read_all(message: &[u8]) {
        let _ = crate::smb::cifs::effect::effects(message);
        let _ = crate::smb::cifs::asked::plain_read(message);
        for block in blocks(message).unwrap_or_default() {
            let _ = NegotiateRequest::parse(&block);
            let _ = NegotiateResponse::parse(&block);
            let _ = SessionSetupRequest::parse(&block);
            let _ = NtCreateRequest::parse(&block);
            let _ = NtCreateResponse::parse(&block);
            let _ = ReadRequest::parse(&block);
            let _ = ReadHead::parse(&block).and_then(|head| head.data(message).map(<[u8]>::len));
            let _ = WriteHead::parse(&block).and_then(|head| head.data(message).map(<[u8]>::len));
            let _ = WriteResponse::parse(&block);
            let _ = CloseRequest::parse(&block);
            let _ = LockingRequest::parse(&block);
        }
    }
}
