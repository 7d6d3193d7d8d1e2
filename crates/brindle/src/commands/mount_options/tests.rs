use super::*;
use brindle_fs::{AtimeMode, Compression, CompressionChoice, PlacementMode};

fn parsed(options: &[&str]) -> Result<MountOptions> {
    MountOptions::parse(options)
}

#[test]
fn lists_are_taken_apart() {
    let options = MountOptions::parse(&["ro,degraded", "subvol=a/b,nodev,,device=/dev/x,x-systemd.foo"]);
    let options = options.expect("all known");
    assert!(options.degraded && options.is_read_only());
    assert_eq!(options.subvolume(), SubvolumeChoice::Path(b"a/b".to_vec()));
    assert_eq!(options.devices, [PathBuf::from("/dev/x")]);
    let by_id = |option| MountOptions::parse(&[option]).expect("a number").subvolume();
    assert_eq!(by_id("subvolid=0x105"), SubvolumeChoice::Id(RootId::new(261)));
    assert_eq!(by_id("subvolid=261"), by_id("subvolid=0x105"));
}

#[test]
fn memory_is_given_in_mib() {
    let bytes = |option| MountOptions::parse(&[option]).map(|options| options.metadata_bytes);
    assert_eq!(bytes("metadata_memory=64").expect("a number"), Some(64 << 20));
    assert_eq!(bytes("ro").expect("known"), None);
    for wrong in ["metadata_memory", "metadata_memory=0", "metadata_memory=1G", "metadata_memory=1048577"] {
        assert!(bytes(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_last_of_opposites_counts() {
    let options = MountOptions::parse(&["nodev,rw", "dev,ro"]).expect("all known");
    assert!(options.mount.devices == Some(true) && options.is_read_only());
    assert_eq!(options.mount.set_user_id, None);
}

#[test]
fn a_log_stays_where_nothing_is_written() {
    let checked = |option: &str| MountOptions::parse(&[option]).expect("known").check_read_only();
    for option in ["norecovery", "nologreplay", "rescue=nologreplay"] {
        assert!(checked(option).is_err(), "{option}");
        assert!(checked(&format!("ro,{option}")).is_ok(), "{option}");
    }
    assert!(checked("rw").is_ok());
}

#[test]
fn options_of_btrfs_that_change_nothing_here_are_taken() {
    for option in [
        "space_cache",
        "space_cache=v2",
        "nospace_cache",
        "clear_cache",
        "acl",
        "barrier",
        "ssd_spread",
        "thread_pool=8",
        "skip_balance",
        "rescan_uuid_tree",
        "metadata_ratio=4",
        "fatal_errors=bug",
        "X-mount.mkdir",
        "comment=x",
    ] {
        assert_eq!(MountOptions::parse(&[option]).expect("taken"), MountOptions::default(), "{option}");
    }
    for (refused, why) in [("noacl", "ACLs are always in force"), ("nobarrier", "devices are always flushed")]
    {
        let said = MountOptions::parse(&[refused]).expect_err("it would change something").to_string();
        assert_eq!(said, format!("option '{refused}' is refused: {why}"));
    }
}

#[test]
fn a_similar_option_is_suggested() {
    for (typed, meant) in [
        ("degradded", "degraded"),
        ("comit=5", "commit"),
        ("subovl=a", "subvol"),
        ("noatme", "noatime"),
        ("discrad=async", "discard"),
    ] {
        let said = MountOptions::parse(&[typed]).expect_err("unknown").to_string();
        assert_eq!(said, format!("unknown option '{typed}'; is '{meant}' meant?"));
    }
}

#[test]
fn unknown_options_are_refused_by_name() {
    let refused = |option: &str| MountOptions::parse(&[option]).expect_err("refused").to_string();
    assert_eq!(refused("ro,bogus=1"), "unknown option 'bogus=1'");
    assert_eq!(refused("read_policy"), "option 'read_policy' needs a value: read_policy=...");
    assert_eq!(refused("device="), "option 'device' needs a value: device=...");
    assert_eq!(refused("subvol"), "option 'subvol' needs a value: subvol=...");
    assert_eq!(refused("subvolid=x"), "option 'subvolid=x': the id is not a number");
    assert_eq!(refused("ro=1"), "option 'ro=1': ro takes no value");
    assert_eq!(refused("degraded=1"), "option 'degraded=1': degraded stands alone, or is degraded=named");
}

#[test]
fn compression_is_as_the_kernel_has_it() {
    let compression = |option| parsed(&[option]).expect("right").write.for_filesystem().compression;
    let choice = |algorithm, level, force| Some(CompressionChoice { algorithm, level, force });
    assert_eq!(compression("compress"), choice(Compression::Zlib, None, false));
    assert_eq!(compression("compress=zstd:3"), choice(Compression::Zstd, Some(3), false));
    assert_eq!(compression("compress-force=lzo"), choice(Compression::Lzo, None, true));
    assert_eq!(compression("compress=no"), None);
    assert_eq!(compression("compress=zstd:-5"), choice(Compression::Zstd, Some(-5), false));
    for wrong in ["compress=bzip2", "compress=zlib:x"] {
        assert!(parsed(&[wrong]).is_err(), "{wrong}");
    }
}

#[test]
fn the_last_one_counts() {
    let options = parsed(&["nodatacow", "datasum", "discard=async", "max_inline=1k", "noatime", "relatime"]);
    let options = options.expect("right");
    let write = options.write.for_filesystem();
    assert!(!write.nodatacow && !write.nodatasum && write.discard);
    assert_eq!((write.max_inline_bytes, write.atime), (1024, AtimeMode::Relative));
    assert_eq!(options.first_of_mount(), Some("nodatacow"));
    assert!(
        parsed(&["nodatacow"]).expect("right").write.for_filesystem().nodatasum,
        "one follows from the other"
    );
}

#[test]
fn fsyncs_are_logged_unless_told_otherwise() {
    let logs = |options: &[&str]| parsed(options).expect("right").write.for_filesystem().tree_log;
    assert!(logs(&[]) && logs(&["notreelog", "treelog"]));
    assert!(!logs(&["notreelog"]));
}

#[test]
fn small_files_have_a_length() {
    let small = |option| parsed(&[option]).map(|options| options.write.for_filesystem().small_file_bytes);
    assert_eq!(small("small_files=64K").expect("right"), Some(65_536));
    assert_eq!(small("small_files=0").expect("right"), Some(0));
    assert_eq!(small("noatime").expect("right"), None, "what the pool has stored counts");
    for wrong in ["small_files=x", "small_files=", "small_files=K", "small_files=99999999999999999999M"] {
        assert!(small(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn s0_14_no_two_options_mean_the_same_by_accident() {
    let words = [
        "compress=zlib",
        "compress-force",
        "nodatacow",
        "nodatasum",
        "max_inline=1",
        "discard",
        "noatime",
        "strictatime",
        "nodiratime",
        "ssd_metadata=strict",
        "no_ssd_metadata",
        "commit=5",
        "notreelog",
        "log_prepare_locked",
        "small_files=1",
        "user_subvol_rm_allowed",
        "metadata_defrag",
        "metadata_defrag=always",
        "autodefrag",
    ];
    let sets = |word: &str| MountOptions { first_of_mount: None, ..parsed(&[word]).expect("known") };
    for (index, word) in words.iter().enumerate() {
        assert_ne!(sets(word), MountOptions::default(), "{word} means something");
        for other in &words[..index] {
            assert_ne!(sets(word), sets(other), "{word} and {other}");
        }
    }
}

#[test]
fn options_of_placement_exclude_each_other() {
    let mode = |options: &[&str]| parsed(options).expect("right").write.for_filesystem().placement;
    assert_eq!(mode(&[]), PlacementMode::Preferred);
    assert_eq!(mode(&["no_ssd_metadata"]), PlacementMode::Classic);
    assert_eq!(mode(&["no_ssd_metadata", "ssd_metadata"]), PlacementMode::Preferred);
    assert_eq!(mode(&["ssd_metadata", "ssd_metadata=strict"]), PlacementMode::Strict);
}

#[test]
fn torn_files_are_laid_together_where_that_is_asked_for() {
    let is_on = |options: &[&str]| parsed(options).expect("right").mount.autodefrag;
    assert!(is_on(&["autodefrag"]) && is_on(&["noautodefrag", "compress,autodefrag"]));
    assert!(!is_on(&[]) && !is_on(&["autodefrag,noautodefrag"]));
    assert!(parsed(&["autodefrag=1"]).is_err());
    assert_eq!(parsed(&["autodefrag"]).expect("right").first_of_mount(), Some("autodefrag"));
    assert!(!parsed(&["autodefrag"]).expect("right").is_of_mount_alone());
}

#[test]
fn commits_have_an_interval() {
    let interval = |option| parsed(&[option]).map(|options| options.mount.commit_interval);
    assert_eq!(interval("commit=5").expect("right"), Some(Duration::from_secs(5)));
    assert_eq!(interval("commit=0").expect("the default"), None);
    assert!(interval("commit=x").is_err() && interval("commit").is_err());
}

#[test]
fn the_manual_names_every_option_of_the_table() {
    let manual = manual();
    for row in table::ROWS {
        assert!(manual.contains(row.name), "{}", row.name);
    }
    assert!(manual.contains("\n  commit=SECONDS       how often"), "{manual}");
    assert!(manual.contains("\n  discard[=async]      freed space"), "{manual}");
    assert!(manual.lines().all(|line| line.len() <= 100), "{manual}");
}

#[test]
fn every_name_of_the_table_is_there_once() {
    let mut names: Vec<&str> = table::all_names().collect();
    names.sort_unstable();
    // Of mount(8) without a value, and of FUSE with one.
    let twice: Vec<&str> = names.windows(2).filter(|two| two[0] == two[1]).map(|two| two[0]).collect();
    assert_eq!(twice, ["user"]);
}

#[test]
fn options_that_change_something_are_shown_back() {
    let shown = |lists: &[&str]| given(lists);
    assert_eq!(
        shown(&["rw,dev,nodatacow,,compress=zlib", "datacow,datasum,device=/dev/x,x-y,relatime"]),
        "compress=zlib"
    );
    assert_eq!(
        shown(&["degraded,noatime,commit=5,read_policy=pid", "subvol=a,fsname=b"]),
        "degraded,noatime,subvol=a"
    );
    assert_eq!(shown(&["compress=lzo,compress=zstd:5"]), "compress=zstd:5");
    assert_eq!(shown(&["autodefrag"]), "", "a remount changes it: the mount tells");
    assert_eq!(shown(&["nonempty,default_permissions,metadata_defrag=off,ssd_metadata"]), "");
}

#[test]
fn options_of_fuse_and_of_tests_of_the_kernel_are_refused_with_the_reason() {
    let said = |option: &str| parsed(&[option]).expect_err("refused").to_string();
    for option in ["uid=5", "gid=5", "umask=022"] {
        let name = split(option).0;
        assert!(said(option).starts_with(&format!("option '{name}' is refused: owners and modes are those")));
    }
    for option in ["max_read=4096", "attr_timeout=1", "entry_timeout=1", "negative_timeout=1"] {
        assert!(said(option).contains(" is refused: "), "{option}");
    }
    for option in ["fragment=data", "check_int", "check_int_data", "check_int_print_mask=1", "ref_verify"] {
        assert!(said(option).contains("it tests the kernel's btrfs"), "{option}");
    }
    assert_eq!(parsed(&["nonempty"]).expect("taken").mount, MountChoices::default());
}
