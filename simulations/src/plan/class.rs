//! Names of the fault classes, as plans, counters and reports write them.

use super::Fault;

macro_rules! classes {
    ($($variant:ident = $name:literal,)+) => {
        impl Fault {
            /// All classes, in the order of the enum.
            pub(crate) const ALL_CLASSES: &'static [&'static str] = &[$($name),+];

            /// Its class, which is its `do` in plans.
            pub(crate) const fn class(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $name,)+
                }
            }
        }
    };
}

classes! {
    Isolate = "isolate",
    Split = "split",
    OneWay = "one_way",
    CloseLinks = "close_links",
    Bridge = "bridge",
    Ring = "ring",
    Latency = "latency",
    Loss = "loss",
    Reset = "reset",
    Hold = "hold",
    Crash = "crash",
    PowerLoss = "power_loss",
    Freeze = "freeze",
    Stop = "stop",
    RollingRestart = "rolling_restart",
    CrashStorm = "crash_storm",
    SlowDisk = "slow_disk",
    StallDisk = "stall_disk",
    SyncFails = "sync_fails",
    ReadFails = "read_fails",
    WriteFails = "write_fails",
    DiskFull = "disk_full",
    BitRot = "bit_rot",
    Misdirect = "misdirect",
    SwapDisks = "swap_disks",
    WipeDisk = "wipe_disk",
    ClockJump = "clock_jump",
    ClockDrift = "clock_drift",
    WallClock = "wall_clock",
    Join = "join",
    Replace = "replace",
    MoveReplica = "move_replica",
    SplitShard = "split_shard",
    MergeShard = "merge_shard",
    Upgrade = "upgrade",
    HandOver = "hand_over",
    Snapshot = "snapshot",
    LoseTail = "lose_tail",
    OldImage = "old_image",
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A fault of this class in JSON, with all fields that the class has.
    fn fields_of(class: &str) -> serde_json::Value {
        let mut fault = json!({ "do": class });
        let map = fault.as_object_mut().unwrap();
        let who = ("who", json!("node:1"));
        let fields = match class {
            "split" => vec![("left", json!([1]))],
            "one_way" => vec![who, ("outbound", json!(true))],
            "close_links" => vec![who, ("outbound", json!(true)), ("silent", json!(false))],
            "bridge" => vec![("middle", json!(1))],
            "ring" | "rolling_restart" | "split_shard" | "merge_shard" | "upgrade" => vec![],
            "latency" | "clock_jump" | "wall_clock" => vec![who, ("ms", json!(1))],
            "loss" | "clock_drift" => vec![who, ("per_mille", json!(1))],
            "power_loss" => vec![who, ("mode", json!("subset"))],
            "crash_storm" => vec![who, ("count", json!(2))],
            "slow_disk" => vec![who, ("factor", json!(2))],
            "disk_full" => vec![who, ("free_bytes", json!(0))],
            "lose_tail" => vec![who, ("bytes", json!(1))],
            "bit_rot" => vec![who, ("part", json!("log")), ("bits", json!(1))],
            "swap_disks" => vec![("one", json!(1)), ("other", json!(2))],
            "join" => vec![("via", json!("node:1"))],
            "move_replica" => vec![("shard", json!(0)), who],
            _ => vec![who],
        };
        map.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
        fault
    }

    #[test]
    fn classes_are_the_tags() {
        for class in Fault::ALL_CLASSES {
            let fault: Fault = serde_json::from_value(fields_of(class)).unwrap();
            assert_eq!(fault.class(), *class);
            assert_eq!(serde_json::to_value(&fault).unwrap(), fields_of(class));
        }
    }
}
