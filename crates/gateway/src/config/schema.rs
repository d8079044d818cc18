//! Every section and key of the file, in one table: the reader checks against
//! it, `print-config` takes its comments from it, and the reference page is
//! generated from it.

/// A table of the file.
#[derive(Debug)]
pub struct Section {
    /// As in the file: `peer` is `[[peer]]`, `rule.match` the inline table
    /// `match` of a rule.
    pub name: &'static str,
    /// Whether there may be several.
    pub repeated: bool,
    /// What it is for.
    pub doc: &'static str,
    /// Its keys, in the order they are printed.
    pub keys: &'static [Key],
}

/// A key of a section.
#[derive(Debug)]
pub struct Key {
    /// As in the file.
    pub name: &'static str,
    /// What may stand there, with an example.
    pub accepts: &'static str,
    /// What holds when it is absent; `required` where it may not be.
    pub default: &'static str,
    /// What it does.
    pub doc: &'static str,
}

impl Section {
    /// As it is written in the file.
    pub fn header(&self) -> String {
        match (self.name.rsplit_once('.'), self.repeated) {
            (Some((_, inline)), _) => format!("`{inline} = {{ ... }}`"),
            (None, true) => format!("[[{}]]", self.name),
            (None, false) => format!("[{}]", self.name),
        }
    }

    /// The key of that name.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

/// The section of that name; the names are those of [`SECTIONS`].
pub fn section(name: &str) -> Option<&'static Section> {
    SECTIONS.iter().find(|section| section.name == name)
}

/// The whole language.
pub static SECTIONS: &[Section] = &[
    Section {
        name: "site",
        repeated: false,
        doc: "Who this gateway is.",
        keys: &[
            Key {
                name: "name",
                accepts: "a short name such as \"harbour\"",
                default: "required",
                doc: "Name shown to peers and operators.",
            },
            Key {
                name: "key",
                accepts: "a path such as \"harbour.key\"",
                default: "required",
                doc: "File with this gateway's private key, mode 0600, written by `farhaul keygen`. \
                      Relative paths, here and elsewhere, start at the folder of this file.",
            },
        ],
    },
    Section {
        name: "tunnel",
        repeated: false,
        doc: "The UDP side: where peers reach this gateway, and how patient the tunnel is.",
        keys: &[
            Key {
                name: "listen",
                accepts: "an address with a port such as \"[::]:4433\" (UDP)",
                default: "\"[::]:4433\" if a peer dials this gateway, else \"[::]:0\"",
                doc: "UDP address of the tunnel. Port 0 lets the system choose, for a gateway that only dials.",
            },
            Key {
                name: "resume_max",
                accepts: "a duration from 0s to 24h such as \"120s\"",
                default: "\"120s\"",
                doc: "How long connections are kept while their peer is silent; after that both applications see a reset.",
            },
            Key {
                name: "keep_alive",
                accepts: "a duration from 50ms to 60s such as \"700ms\"",
                default: "\"700ms\"",
                doc: "Interval of keep-alives on an idle tunnel; also keeps a NAT's entry open. At most half of `dead_after`.",
            },
            Key {
                name: "dead_after",
                accepts: "a duration from 200ms to 10min such as \"2.5s\"",
                default: "\"2.5s\"",
                doc: "Silence after which a peer counts as gone and new connections go direct.",
            },
            Key {
                name: "open_timeout",
                accepts: "a duration from 1s to 10min such as \"20s\"",
                default: "\"20s\"",
                doc: "How long a client's connection attempt is held for the far side's answer.",
            },
            Key {
                name: "drain",
                accepts: "a duration from 0s to 1h such as \"30s\"",
                default: "\"30s\"",
                doc: "How long connections may finish after the gateway was told to stop.",
            },
            Key {
                name: "flows_max",
                accepts: "a number from 1 to 1000000",
                default: "10000",
                doc: "Most connections held at once; beyond it new ones go direct.",
            },
        ],
    },
    Section {
        name: "peer",
        repeated: true,
        doc: "A gateway at another site; one block each.",
        keys: &[
            Key {
                name: "name",
                accepts: "a short name such as \"hq\"",
                default: "required",
                doc: "Name in commands, logs and metrics.",
            },
            Key {
                name: "address",
                accepts: "a host and UDP port such as \"hq.example.org:4433\"",
                default: "absent: the peer dials this gateway",
                doc: "Where the peer is reached. Names are resolved when used.",
            },
            Key {
                name: "key",
                accepts: "a public key, `fh1-` and 48 characters",
                default: "required",
                doc: "The peer's public key, as its `farhaul keygen` printed it. No other key is believed.",
            },
            Key {
                name: "networks",
                accepts: "a list of networks such as [\"10.2.0.0/16\", \"fd00:2::/48\"]",
                default: "[]",
                doc: "What lies behind the peer. The longest prefix wins, among peers and against `[accept]` destinations here.",
            },
            Key {
                name: "dial",
                accepts: "\"us\", \"peer\" or \"both\"",
                default: "\"us\" with an address, else \"peer\"",
                doc: "Who sets the tunnel up: this gateway, the peer, or whoever is first.",
            },
            Key {
                name: "link",
                accepts: "words as `farhaul link` takes them, such as \"oc1 delay 100ms\"",
                default: "absent: learned",
                doc: "What is known of the circuit to this peer.",
            },
            Key {
                name: "owned",
                accepts: "true or false",
                default: "false",
                doc: "true: nobody else shares this circuit, all of it may be used.",
            },
        ],
    },
    Section {
        name: "intercept",
        repeated: false,
        doc: "How connections are taken from the wire.",
        keys: &[
            Key {
                name: "mode",
                accepts: "\"transparent\" or \"explicit\"",
                default: "\"transparent\" if `interfaces` are named, else \"explicit\"",
                doc: "transparent: TCP connections from `interfaces` to peers' networks are taken by the gateway. \
                      explicit: only the `[[listen]]` blocks. To leave some connections alone, give them a rule with optimise = \"direct\".",
            },
            Key {
                name: "interfaces",
                accepts: "a list of interfaces such as [\"lan0\"]",
                default: "[]",
                doc: "The LAN side; never the one towards the long link.",
            },
            Key {
                name: "client_address",
                accepts: "\"keep\" or \"gateway\"",
                default: "\"keep\"",
                doc: "Source address that servers at this site see: the client's own, or this gateway's, \
                      where replies would not come back through it.",
            },
            Key {
                name: "mark",
                accepts: "a number from 0x00100000 to 0x0ff00000 within the mask 0x0ff00000",
                default: "0x0fa00000",
                doc: "Mark (fwmark) of the gateway's own packets; change it where something else uses these bits.",
            },
            Key {
                name: "table",
                accepts: "a number from 1 to 4294967295, except 253 to 255",
                default: "250",
                doc: "Routing table the gateway uses to deliver taken connections to itself.",
            },
            Key {
                name: "queue",
                accepts: "a number from 1 to 65535",
                default: "250",
                doc: "First NFQUEUE number the gateway uses.",
            },
        ],
    },
    Section {
        name: "listen",
        repeated: true,
        doc: "An explicit way in: exactly one of `socks`, `connect` and `forward`.",
        keys: &[
            Key {
                name: "socks",
                accepts: "an address with a port such as \"127.0.0.1:1080\"",
                default: "absent",
                doc: "SOCKS5 proxy (CONNECT, no password).",
            },
            Key {
                name: "connect",
                accepts: "an address with a port such as \"127.0.0.1:3128\"",
                default: "absent",
                doc: "HTTP proxy for the CONNECT method.",
            },
            Key {
                name: "forward",
                accepts: "an address with a port such as \"127.0.0.1:8445\"",
                default: "absent",
                doc: "Port forward: everything that arrives goes to `target`.",
            },
            Key {
                name: "target",
                accepts: "a host and port such as \"10.2.0.5:445\"",
                default: "absent; required with `forward`",
                doc: "Where a port forward leads.",
            },
        ],
    },
    Section {
        name: "rule",
        repeated: true,
        doc: "What to do with which connections. The first rule that matches decides; rules for usual ports follow yours.",
        keys: &[
            Key {
                name: "name",
                accepts: "a short name such as \"backup\"",
                default: "\"rule N\", N counted from 1",
                doc: "Name in `farhaul flows` and logs.",
            },
            Key {
                name: "match",
                accepts: "a table such as { destination = [\"10.2.0.0/16\"], port = [445] }",
                default: "{} (every connection)",
                doc: "Which connections; everything that is named must fit.",
            },
            Key {
                name: "optimise",
                accepts: "\"auto\", \"opaque\", \"direct\", \"smb\", \"http\", \"nfs\", \"dns\" or \"mapi\"",
                default: "\"auto\"",
                doc: "Protocol optimisation: detected, none (opaque), or that of one protocol. \
                      direct: the connection does not go through the tunnel at all.",
            },
            Key {
                name: "class",
                accepts: "\"auto\", \"control\", \"interactive\", \"bulk\" or \"background\"",
                default: "\"auto\"",
                doc: "Priority in the tunnel; auto goes by how the connection behaves.",
            },
            Key {
                name: "transport",
                accepts: "\"auto\", \"on\" or \"off\"",
                default: "\"auto\"",
                doc: "Transport optimisation; off sends the connection direct.",
            },
            Key {
                name: "reduction",
                accepts: "\"auto\", \"off\", \"memory\", \"disk\" or \"both\"",
                default: "\"auto\"",
                doc: "Where redundancy elimination keeps what it has seen.",
            },
            Key {
                name: "compression",
                accepts: "\"auto\", \"off\" or a zstd level from -7 to 22",
                default: "\"auto\"",
                doc: "Compression of what redundancy elimination leaves: a level that follows link, processor and content, none, or always this one, in both directions (a peer of an older version chooses its own for what it sends). Levels above 9 take long.",
            },
            Key {
                name: "fec",
                accepts: "\"auto\", \"on\" or \"off\"",
                default: "\"auto\"",
                doc: "Forward error correction on a lossy path: for what counts as interactive, for all of it, or not at all.",
            },
            Key {
                name: "write_behind",
                accepts: "\"auto\", \"on\" or \"off\"",
                default: "\"auto\"",
                doc: "Whether writes to files may be answered before the server has them. What was answered and not closed is lost with the connection when a gateway dies or the link is gone for longer than `tunnel.resume_max`, and the client's program hears of a broken connection. Linux, which goes on as if nothing had been, is told of each write by the server where it can be known; mounted with `cache=none` it cannot: off for those.",
            },
            Key {
                name: "client_address",
                accepts: "\"keep\" or \"gateway\"",
                default: "absent: as the far gateway's [intercept] says",
                doc: "Source address the server shall see for these connections.",
            },
        ],
    },
    Section {
        name: "rule.match",
        repeated: false,
        doc: "What a connection must look like. Absent or empty: anything.",
        keys: &[
            Key {
                name: "source",
                accepts: "a list of networks such as [\"10.1.4.0/24\"]",
                default: "[]",
                doc: "The client's networks.",
            },
            Key {
                name: "destination",
                accepts: "a list of networks such as [\"10.2.0.0/16\", \"10.3.0.7\"]",
                default: "[]",
                doc: "The server's networks. With `host` as well, either may fit.",
            },
            Key {
                name: "host",
                accepts: "a list of names such as [\"files.example.org\", \"*.example.net\"]",
                default: "[]",
                doc: "Server names, for SOCKS, CONNECT and port forwards, which carry one. `*.` stands for any labels before.",
            },
            Key {
                name: "port",
                accepts: "a list of ports and ranges such as [445, \"8000-8099\"]",
                default: "[]",
                doc: "The server's ports.",
            },
        ],
    },
    Section {
        name: "accept",
        repeated: false,
        doc: "What peers may do through this gateway.",
        keys: &[Key {
            name: "destinations",
            accepts: "a list of networks such as [\"10.1.0.0/16\"]",
            default: "[] (nothing)",
            doc: "What peers may reach through this gateway. Loopback, link-local and multicast addresses \
                  and the gateway's own are refused even inside these networks.",
        }],
    },
    Section {
        name: "store",
        repeated: false,
        doc: "Memory and disk for redundancy elimination.",
        keys: &[
            Key {
                name: "memory",
                accepts: "a size such as \"2 GiB\"",
                default: "\"0 B\": no redundancy elimination and no compression; with a disk what it is used from",
                doc: "Memory for what has passed, shared by all peers and both directions. Reduction needs some at \
                      both gateways of a pair, at least 16 MiB for each peer. It is taken as something passes; indexes and \
                      maps are within it, without a disk. With one, a map of up to 16 MiB for each direction and peer and what finds \
                      the content on disk come on top (see `size`). Of what clients do not read a gateway keeps up to a sixth of it besides. \
                      A flow may have a tenth of a peer's part under way, so that should be more than the link holds (rate times round trip; \
                      where packets are lost four times that at 5 %, seven times at 10 %), or a new file is held back: 120 MiB for 1 Gbit/s \
                      and 100 ms without loss. Where only a disk is given it is 256 MiB for each peer, but \
                      no more than the disk, or an 800th of the disk if that is more; `farhaul check-config` says how much. \"0 B\" switches reduction off, disk or not. \
                      A peer that a reload adds has what the others leave of memory and disk, until a restart.",
            },
            Key {
                name: "disk",
                accepts: "a table such as { path = \"/var/lib/farhaul\", size = \"200 GiB\" }",
                default: "absent: what is in memory is gone after a restart",
                doc: "Keeps what has passed on disk: a gateway that starts again knows it, and what has left the memory is read back when it comes again. Both gateways of a pair need one.",
            },
        ],
    },
    Section {
        name: "store.disk",
        repeated: false,
        doc: "What has passed, on disk: read back after a restart, the newest first, and whenever what has left the memory comes again. \
              Shared by all peers and both directions.",
        keys: &[
            Key {
                name: "path",
                accepts: "a path such as \"/var/lib/farhaul\"",
                default: "required",
                doc: "Folder of the segment files. They hold what has passed, as it was: keep it from others.",
            },
            Key {
                name: "size",
                accepts: "a size of at least 64 MiB such as \"200 GiB\"",
                default: "required",
                doc: "Most bytes it may take, at least 64 MiB for each peer. Each peer and direction has an equal share, of which it uses whole files of 16 MiB of content and a little more: `farhaul cache stats` shows what fits, 480 MiB of 512 for one peer. 1 GB of it takes 1.2 MB of memory besides `memory`, to be found again, and the map of what has passed up to 16 MiB for each direction and peer. It may be changed: what still fits stays. After a restart up to 64 GiB of each direction are known again.",
            },
        ],
    },
    Section {
        name: "admin",
        repeated: false,
        doc: "How operators and monitoring reach the gateway.",
        keys: &[
            Key {
                name: "socket",
                accepts: "a path such as \"/run/farhaul/gateway.sock\"",
                default: "\"/run/farhaul/gateway.sock\"",
                doc: "Unix socket of the admin API, which `farhaul status` and its kin use. Two gateways on one machine need two.",
            },
            Key {
                name: "metrics",
                accepts: "an address with a port such as \"127.0.0.1:9464\"",
                default: "absent: only on the admin socket",
                doc: "TCP address that serves /metrics to Prometheus.",
            },
        ],
    },
    Section {
        name: "log",
        repeated: false,
        doc: "Logs go to standard error.",
        keys: &[
            Key {
                name: "format",
                accepts: "\"text\" or \"json\"",
                default: "\"text\"",
                doc: "Lines for people, or one JSON object per line.",
            },
            Key {
                name: "level",
                accepts: "\"debug\", \"info\", \"warn\" or \"error\"",
                default: "\"info\"",
                doc: "Least severe event that is logged.",
            },
        ],
    },
];
