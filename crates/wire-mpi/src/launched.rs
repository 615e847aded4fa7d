//! Whether a launcher of MPI programs started this process, as its environment says. Asks no library.

/// What a launcher says of the process that it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launched {
    /// How many processes it started; some do not say it.
    pub size: Option<usize>,
    pub rank: usize,
    /// Among those on the same host.
    pub local_rank: Option<usize>,
    /// Whether it is known that all are on this host.
    pub are_all_here: bool,
}

/// Variables of a launcher: where it says the size, the rank, and the rank on the host.
struct Variables {
    size: Option<&'static str>,
    rank: &'static str,
    local_rank: Option<&'static str>,
    local_size: Option<&'static str>,
}

/// The most particular first: an mpirun may itself run as a step of Slurm. `SLURM_NTASKS` is none of them, since a batch script
/// has it too, which is one process.
const LAUNCHERS: [Variables; 4] = [
    Variables {
        size: Some("OMPI_COMM_WORLD_SIZE"),
        rank: "OMPI_COMM_WORLD_RANK",
        local_rank: Some("OMPI_COMM_WORLD_LOCAL_RANK"),
        local_size: Some("OMPI_COMM_WORLD_LOCAL_SIZE"),
    },
    // Hydra, which MPICH and Intel's MPI have.
    Variables {
        size: Some("PMI_SIZE"),
        rank: "PMI_RANK",
        local_rank: Some("MPI_LOCALRANKID"),
        local_size: Some("MPI_LOCALNRANKS"),
    },
    Variables {
        size: Some("SLURM_STEP_NUM_TASKS"),
        rank: "SLURM_PROCID",
        local_rank: Some("SLURM_LOCALID"),
        local_size: None,
    },
    Variables { size: None, rank: "PMIX_RANK", local_rank: None, local_size: None },
];

/// The variables that say a rank.
#[cfg(any(feature = "mpi", test))]
pub(crate) fn rank_variables() -> impl Iterator<Item = &'static str> {
    LAUNCHERS.iter().map(|launcher| launcher.rank)
}

/// None where nobody but the user started this process.
pub fn launched() -> Option<Launched> {
    read(|name| std::env::var(name).ok())
}

impl Launched {
    /// Whether it is known that there is no other process.
    pub fn is_alone(&self) -> bool {
        self.size == Some(1)
    }
}

fn read(variable: impl Fn(&str) -> Option<String>) -> Option<Launched> {
    let number = |name: &str| variable(name)?.trim().parse::<usize>().ok();
    LAUNCHERS.iter().find_map(|launcher| {
        let size = launcher.size.and_then(number);
        // A rank without its size may be left over from something else.
        if launcher.size.is_some() && size.is_none() {
            return None;
        }
        let rank = number(launcher.rank)?;
        // Hydra says how many are on this host where it does not say which one this is.
        let local_size = launcher.local_size.and_then(number);
        let local_rank = launcher.local_rank.and_then(number).or((local_size == Some(1)).then_some(0));
        Some(Launched { size, rank, local_rank, are_all_here: size.is_some() && local_size == size })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(environment: &[(&str, &str)], expected: Option<(Option<usize>, usize, Option<usize>)>) {
        let found = read(|name| environment.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string()));
        assert_eq!(found.map(|l| (l.size, l.rank, l.local_rank)), expected, "{environment:?}");
    }

    #[test]
    fn launchers_are_known_by_their_variables() {
        let ompi = [("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_LOCAL_RANK", "1")];
        check(&ompi, Some((Some(4), 3, Some(1))));
        check(&[("PMI_SIZE", "2"), ("PMI_RANK", "1"), ("MPI_LOCALRANKID", "0")], Some((Some(2), 1, Some(0))));
        check(&[("PMI_SIZE", "2"), ("PMI_RANK", "1"), ("MPI_LOCALNRANKS", "1")], Some((Some(2), 1, Some(0))));
        let slurm = [("SLURM_STEP_NUM_TASKS", "8"), ("SLURM_PROCID", "5"), ("SLURM_LOCALID", "1")];
        check(&slurm, Some((Some(8), 5, Some(1))));
        check(&[("PMIX_RANK", "2")], Some((None, 2, None)));
        // An mpirun inside of a step of Slurm, which is itself one process.
        check(&[slurm.as_slice(), &ompi].concat(), Some((Some(4), 3, Some(1))));
    }

    #[test]
    fn a_launcher_that_says_how_many_are_here_is_believed() {
        for (here, are_all_here) in [("4", true), ("2", false)] {
            let found = read(|name| match name {
                "PMI_SIZE" => Some("4".into()),
                "PMI_RANK" => Some("1".into()),
                "MPI_LOCALNRANKS" => Some(here.into()),
                _ => None,
            });
            assert_eq!(found.map(|l| l.are_all_here), Some(are_all_here));
        }
    }

    #[test]
    fn a_shell_and_a_batch_script_are_no_launchers() {
        check(&[], None);
        check(&[("SLURM_NTASKS", "8"), ("SLURM_PROCID", "0"), ("SLURM_LOCALID", "0")], None);
        check(&[("OMPI_COMM_WORLD_SIZE", "many"), ("OMPI_COMM_WORLD_RANK", "0")], None);
    }

    #[test]
    fn one_process_is_alone_where_that_is_said() {
        let launched = |size| Launched { size, rank: 0, local_rank: None, are_all_here: false };
        assert!(launched(Some(1)).is_alone());
        assert!(!launched(Some(2)).is_alone() && !launched(None).is_alone());
    }
}
