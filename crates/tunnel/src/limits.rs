//! Every bound of the peer protocol, by name.

use crate::frame::FRAME_BYTES_HARD_MAX;

/// Unread bytes any flow may hold besides what all hold together: they do not count against
/// `receive_buffer_bytes_max`, so flows that hold no more make no other one be reset.
pub const RECEIVE_FLOOR_BYTES: u64 = 64 * 1024;

/// Unsent bytes any flow may hold even when the peer as a whole is over `peer_send_buffer_bytes_max`.
pub const SEND_FLOOR_BYTES: usize = 16 * 1024;

/// The least size at which frames are cut, bytes.
pub(crate) const FRAME_BYTES_MIN: usize = 1024;

/// Bounds of one [`Mux`](crate::Mux), that is of one peer. Absurd values are brought into range by
/// [`Limits::clamped`], which `Mux::new` applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Credit of a new flow in each direction, bytes; at least 16 KiB.
    pub flow_window_bytes_initial: u64,
    /// What the credit window of one flow may grow to, bytes.
    pub flow_window_bytes_max: u64,
    /// How far all windows of this peer together may grow beyond the initial ones, bytes.
    pub peer_window_bytes_max: u64,
    /// Received and unread bytes of all flows together, what each holds above
    /// [`RECEIVE_FLOOR_BYTES`]; all in all no more than this and `flows_max` floors can be held.
    /// Beyond it a flow that holds more than its floor and receives more is reset with `Overload`.
    /// What it exceeds `peer_window_bytes_max` by is for initial windows: when half of that is out,
    /// a peer that knows how is asked to give back what it does not use.
    pub receive_buffer_bytes_max: u64,
    /// Written and unsent bytes of one flow.
    pub send_buffer_bytes_max: usize,
    /// Written and unsent bytes of all flows; beyond it each flow has [`SEND_FLOOR_BYTES`] only.
    pub peer_send_buffer_bytes_max: usize,
    /// Flows alive at the same time, both openers together.
    pub flows_max: usize,
    /// How far a flow id of the peer may run ahead of its lowest id not yet seen.
    pub flow_ids_ahead_max: u64,
    /// Control frames waiting to be sent at which no further flow is opened.
    pub control_frames_max: usize,
    /// The largest size at which frames are cut, header included, bytes; 1 KiB to 256 KiB. The
    /// tunnel's rate and the flow's class make them smaller.
    pub frame_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            flow_window_bytes_initial: 1 << 20,
            flow_window_bytes_max: 512 << 20,
            peer_window_bytes_max: 512 << 20,
            receive_buffer_bytes_max: 1 << 30,
            send_buffer_bytes_max: 512 << 10,
            peer_send_buffer_bytes_max: 256 << 20,
            flows_max: 65_536,
            flow_ids_ahead_max: 131_072,
            control_frames_max: 262_144,
            frame_bytes_max: FRAME_BYTES_HARD_MAX,
        }
    }
}

impl Limits {
    /// The same limits with every absurd value brought into the range the protocol works in.
    #[must_use]
    pub fn clamped(mut self) -> Self {
        self.flow_window_bytes_initial = self.flow_window_bytes_initial.clamp(16 << 10, 1 << 40);
        self.flow_window_bytes_max = self
            .flow_window_bytes_max
            .clamp(self.flow_window_bytes_initial, 1 << 40);
        self.peer_window_bytes_max = self.peer_window_bytes_max.min(1 << 50);
        self.receive_buffer_bytes_max = self.receive_buffer_bytes_max.min(1 << 50);
        self.send_buffer_bytes_max = self.send_buffer_bytes_max.max(SEND_FLOOR_BYTES);
        self.flows_max = self.flows_max.clamp(1, 1 << 24);
        self.flow_ids_ahead_max = self.flow_ids_ahead_max.clamp(1, 1 << 32);
        self.control_frames_max = self.control_frames_max.max(16);
        self.frame_bytes_max = clamp_frame_bytes(self.frame_bytes_max);
        self
    }
}

/// Brings a frame size into the permitted range, bytes.
pub(crate) fn clamp_frame_bytes(frame_bytes: usize) -> usize {
    frame_bytes.clamp(FRAME_BYTES_MIN, FRAME_BYTES_HARD_MAX)
}
