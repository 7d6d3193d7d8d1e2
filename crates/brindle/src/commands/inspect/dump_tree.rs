//! `brindle inspect dump-tree`: trees, node by node, in the shape of `btrfs inspect-internal dump-tree`.

use super::tree_choice::{parse_tree, tree_title};
use crate::commands::pool::InspectOptions;
use crate::dump::{ItemStyle, NodeStyle, key_text, print_node, print_node_json};
use crate::options::JsonOption;
use crate::output::{self, Headed};
use anyhow::{Context, Result, bail};
use brindle_care::inspect::{Order, TreeWalk};
use brindle_ondisk::{
    Item, Key, KeyType, Logical, NodeExpectation, ObjectId, RootBackup, RootId, Superblock,
};
use brindle_tree::{Pool, Readahead, Tree, TreeRoot};
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
  Everything, in the order of the tree of roots:
    brindle inspect dump-tree pool.img

  One subvolume, with names hidden, to be sent to another person:
    brindle inspect dump-tree -t 257 --hide-names a.img b.img

  Which trees are there, and where do they begin?
    brindle inspect dump-tree -r /dev/sdb

EXIT STATUS
  0  everything asked for was shown
  1  a device or a tree block can't be read; what can be is shown
  2  wrong usage";

/// Show the trees of a pool, item by item
///
/// Every block is verified (checksum, identity, the fields of each item) before it is shown, and read from
/// another copy if the first is bad. Missing devices are no obstacle as long as another copy is there. A block
/// that can't be had is reported on standard error, and the rest of the tree is shown.
///
/// Times in brackets are UTC. File names are shown as they are; consider that before you send a dump to
/// anyone, or use --hide-names.
///
/// With --json each block (with --roots each tree) is an object on a line of its own, which is called JSON Lines;
/// the items of a leaf have the lines of the text form.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct DumpTreeCommand {
    /// Only the extent and device trees
    #[arg(short, long, group = "what")]
    extents: bool,
    /// Only the root, chunk and device trees
    #[arg(short, long, group = "what")]
    device: bool,
    /// Only the root of each tree
    #[arg(short, long, group = "what")]
    roots: bool,
    /// The same as --roots, and the backup roots
    #[arg(short = 'R', long, group = "what")]
    backups: bool,
    /// Only the UUID tree
    #[arg(short, long, group = "what")]
    uuid: bool,
    /// Only the block at this logical address; can be given several times
    #[arg(short, long, value_name = "BYTENR", group = "what")]
    block: Vec<u64>,
    /// Only this tree: a number, or a name such as fs or EXTENT_TREE
    #[arg(short, long, value_name = "TREE", group = "what", value_parser = parse_tree)]
    tree: Option<RootId>,
    /// With --block: the blocks below it too
    #[arg(long, requires = "block")]
    follow: bool,
    /// Level by level (the default)
    #[arg(long, conflicts_with = "dfs")]
    bfs: bool,
    /// Each node before its children
    #[arg(long)]
    dfs: bool,
    /// Show HIDDEN in place of names and values
    #[arg(long)]
    hide_names: bool,
    /// Show the checksum of each block
    #[arg(long)]
    csum_headers: bool,
    /// Show each checksum of checksum items
    #[arg(long)]
    csum_items: bool,
    #[command(flatten)]
    options: InspectOptions,
    #[command(flatten)]
    json: JsonOption,
    /// Image files or block devices: those of one pool, in any order
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(command: &DumpTreeCommand) -> Result<ExitCode> {
    let pool = command.options.open(&command.devices)?;
    let mut dump = Dump::new(command, &pool);
    dump.everything()?;
    if !command.json.json && dump.ends_with_totals() {
        print_totals(&mut dump.out, &pool.superblock())?;
    }
    dump.out.flush()?;
    Ok(if dump.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A dump under way.
struct Dump<'a, W> {
    command: &'a DumpTreeCommand,
    pool: &'a Pool,
    out: W,
    style: NodeStyle,
    failed: bool,
}

impl<'a> Dump<'a, Headed<output::Stdout>> {
    fn new(command: &'a DumpTreeCommand, pool: &'a Pool) -> Self {
        let context = pool.volume().tree_context();
        let items = ItemStyle {
            checksum_size: context.checksum_type.size(),
            sectorsize: context.sectorsize,
            hide_names: command.hide_names,
            checksums: command.csum_items,
        };
        let style =
            NodeStyle { checksum_type: context.checksum_type, checksums: command.csum_headers, items };
        let header = (!command.json.json).then(|| format!("brindle v{}", env!("CARGO_PKG_VERSION")));
        Self { command, pool, out: Headed::new(output::stdout(), header), style, failed: false }
    }
}

impl<W: Write> Dump<'_, W> {
    fn everything(&mut self) -> Result<()> {
        if !self.command.block.is_empty() {
            return self.blocks();
        }
        if let Some(tree) = self.command.tree {
            return self.chosen_tree(tree);
        }
        let superblock = &self.pool.superblock();
        let log = TreeRoot::log_root_tree(superblock);
        if !self.command.extents && !self.command.uuid {
            self.fixed_tree("root tree", TreeRoot::root_tree(superblock))?;
            self.fixed_tree("chunk tree", TreeRoot::chunk_tree(superblock))?;
            if let Some(log) = log {
                self.fixed_tree("log root tree", log)?;
            }
        }
        self.listed_trees(TreeRoot::root_tree(superblock))?;
        if let Some(log) = log {
            if !self.is_partial() {
                self.listed_trees(log)?;
            }
        }
        if self.command.backups && !self.command.json.json {
            print_backups(&mut self.out, superblock)?;
        }
        Ok(())
    }

    /// Returns true if the pool's totals follow; not after a part that the superblock points to, as in btrfs-progs.
    fn ends_with_totals(&self) -> bool {
        let fixed = [RootId::ROOT_TREE, RootId::CHUNK_TREE, RootId::TREE_LOG];
        let is_fixed = self.command.tree.is_some_and(|tree| fixed.contains(&tree));
        self.command.block.is_empty() && !self.is_partial() && !is_fixed
    }

    /// Returns true if some trees of the tree of roots are left out.
    fn is_partial(&self) -> bool {
        self.command.extents || self.command.device || self.command.uuid
    }

    fn is_wanted(&self, tree: RootId) -> bool {
        match tree {
            RootId::DEV_TREE => self.command.extents || self.command.device || !self.is_partial(),
            RootId::EXTENT_TREE => self.command.extents || !self.is_partial(),
            RootId::UUID_TREE => self.command.uuid || !self.is_partial(),
            _ => !self.is_partial(),
        }
    }

    fn blocks(&mut self) -> Result<()> {
        let alignment = u64::from(self.pool.volume().tree_context().sectorsize);
        let is_askew = |block: &&u64| !Logical::new(**block).is_aligned(alignment);
        if let Some(block) = self.command.block.iter().find(is_askew) {
            bail!("block {block} is not aligned to the sector size {alignment}");
        }
        for block in &self.command.block {
            let bytenr = Logical::new(*block);
            let expected = NodeExpectation { bytenr, generation: None, level: None, first_key: None };
            let walk = if self.command.follow {
                TreeWalk::new(self.pool, expected, self.order())
            } else {
                TreeWalk::alone(self.pool, expected)
            };
            self.nodes(walk)?;
        }
        Ok(())
    }

    /// The tree of `--tree`; every one of its root items, where a relocation left several.
    fn chosen_tree(&mut self, tree: RootId) -> Result<()> {
        let superblock = &self.pool.superblock();
        match tree {
            RootId::ROOT_TREE => self.fixed_tree("root tree", TreeRoot::root_tree(superblock)),
            RootId::CHUNK_TREE => self.fixed_tree("chunk tree", TreeRoot::chunk_tree(superblock)),
            RootId::TREE_LOG => {
                let log = TreeRoot::log_root_tree(superblock).context("the pool has no log tree")?;
                self.fixed_tree("log root tree", log)?;
                self.listed_trees(log)
            }
            _ => {
                let found = self.roots_of(TreeRoot::root_tree(superblock), Some(tree))?;
                if found.is_empty() {
                    bail!("the pool has no tree {}", crate::dump::root_name(tree));
                }
                found.into_iter().try_for_each(|(key, root)| self.listed_tree(&key, root))
            }
        }
    }

    /// A tree that the superblock points to.
    fn fixed_tree(&mut self, title: &str, root: TreeRoot) -> Result<()> {
        let roots_only = self.command.roots || self.command.backups;
        if !self.command.json.json {
            if roots_only {
                writeln!(self.out, "{title}: {} level {}", root.bytenr, root.level)?;
            } else {
                writeln!(self.out, "{title}")?;
            }
        } else if roots_only {
            self.root_json(title, None, root)?;
        }
        if roots_only {
            return Ok(());
        }
        self.nodes(TreeWalk::new(self.pool, expectation(root), self.order()))
    }

    /// The trees that have an item in a tree of roots.
    fn listed_trees(&mut self, list: TreeRoot) -> Result<()> {
        for (key, root) in self.roots_of(list, None)? {
            if list.id == RootId::TREE_LOG || self.is_wanted(root.id) {
                self.listed_tree(&key, root)?;
            }
        }
        Ok(())
    }

    fn listed_tree(&mut self, key: &Key, root: TreeRoot) -> Result<()> {
        let title = tree_title(RootId::new(key.objectid.get()));
        let roots_only = self.command.roots || self.command.backups;
        if !self.command.json.json {
            write!(self.out, "{title} key ({})", key_text(key))?;
            match (roots_only, self.command.extents) {
                (true, _) => writeln!(self.out, " {} level {}", root.bytenr, root.level)?,
                (false, true) => writeln!(self.out)?,
                (false, false) => writeln!(self.out, " ")?,
            }
        } else if roots_only {
            self.root_json(title, Some(key), root)?;
        }
        if roots_only {
            return Ok(());
        }
        self.nodes(TreeWalk::new(self.pool, expectation(root), self.order()))
    }

    fn root_json(&mut self, title: &str, key: Option<&Key>, root: TreeRoot) -> Result<()> {
        let value = serde_json::json!({
            "tree": title,
            "key": key.map(key_text),
            "bytenr": root.bytenr.get(),
            "generation": root.generation.get(),
            "level": root.level,
        });
        Ok(writeln!(self.out, "{value}")?)
    }

    /// The root items of a tree of roots, or those of one tree.
    fn roots_of(&mut self, list: TreeRoot, only: Option<RootId>) -> Result<Vec<(Key, TreeRoot)>> {
        let mut found = Vec::new();
        let mut cursor = self.pool.cursor(&Tree::fixed(list), Readahead::Forward);
        let first = only.map_or(Key::MIN, |tree| Key::first_of(tree.object_id(), KeyType::ROOT_ITEM));
        cursor.seek(&first)?;
        while let Some((key, data)) = cursor.item() {
            if only.is_some_and(|tree| key > Key::last_of(tree.object_id(), KeyType::ROOT_ITEM)) {
                break;
            }
            if let (KeyType::ROOT_ITEM, Ok(Item::Root(item))) = (key.item_type, Item::parse(&key, data)) {
                // A log tree belongs to the subvolume that the key's offset names.
                let is_log = key.objectid == ObjectId::TREE_LOG;
                let id = RootId::new(if is_log { key.offset() } else { key.objectid.get() });
                found.push((key, TreeRoot::from_item(id, &item)));
            }
            cursor.next()?;
        }
        Ok(found)
    }

    fn nodes(&mut self, walk: TreeWalk<'_>) -> Result<()> {
        for node in walk {
            match node {
                // Of this part btrfs-progs shows the leaves alone.
                Ok(node) if self.command.extents && !node.is_leaf() => {}
                Ok(node) if self.command.json.json => print_node_json(&mut self.out, &node, &self.style)?,
                Ok(node) => print_node(&mut self.out, &node, &self.style)?,
                Err(error) => {
                    self.failed = true;
                    self.out.flush()?;
                    output::complain(&error.into());
                }
            }
        }
        Ok(())
    }

    fn order(&self) -> Order {
        if self.command.dfs { Order::DepthFirst } else { Order::BreadthFirst }
    }
}

fn expectation(root: TreeRoot) -> NodeExpectation {
    NodeExpectation::root(root.bytenr, root.generation, root.level)
}

fn print_totals(out: &mut impl Write, superblock: &Superblock) -> Result<()> {
    writeln!(out, "total bytes {}", superblock.total_bytes)?;
    writeln!(out, "bytes used {}", superblock.bytes_used)?;
    Ok(writeln!(out, "uuid {}", superblock.fsid)?)
}

fn print_backups(out: &mut impl Write, superblock: &Superblock) -> Result<()> {
    for (slot, backup) in superblock.super_roots.iter().enumerate() {
        let RootBackup { tree_root, extent_root, chunk_root, dev_root, csum_root, fs_root, .. } = backup;
        writeln!(out, "btrfs root backup slot {slot}")?;
        writeln!(out, "\ttree root gen {} block {tree_root}", backup.tree_root_gen)?;
        writeln!(out, "\t\textent root gen {} block {extent_root}", backup.extent_root_gen)?;
        writeln!(out, "\t\tchunk root gen {} block {chunk_root}", backup.chunk_root_gen)?;
        writeln!(out, "\t\tdevice root gen {} block {dev_root}", backup.dev_root_gen)?;
        writeln!(out, "\t\tcsum root gen {} block {csum_root}", backup.csum_root_gen)?;
        writeln!(out, "\t\tfs root gen {} block {fs_root}", backup.fs_root_gen)?;
        let RootBackup { bytes_used, total_bytes, num_devices, .. } = backup;
        writeln!(out, "\t\t{bytes_used} used {total_bytes} total {num_devices} devices")?;
    }
    Ok(())
}
