use super::*;

fn sorted(mut indices: Vec<usize>) -> Vec<usize> {
    indices.sort_unstable();
    indices
}

#[test]
fn random_orders_of_any_length() {
    let whole = RandomSampler::new(7);
    assert_eq!(whole.indices(10, 3), permutation(10, 7, 3));
    assert_eq!(sorted(whole.num_samples(4).indices(10, 0)).len(), 4);
    let long = whole.num_samples(25).indices(10, 1);
    // Two orders, and half of a third.
    assert_eq!(
        (sorted(long[..10].to_vec()), sorted(long[10..20].to_vec())),
        ((0..10).collect(), (0..10).collect())
    );
    assert!(long[..10] != long[10..20] && long.len() == 25);
    let replaced = whole.replacement(true).num_samples(10_000);
    let mut counts = [0u32; 10];
    replaced.indices(10, 0).into_iter().for_each(|index| counts[index] += 1);
    // 1000 draws of each are expected, with a standard deviation of 30.
    assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    assert_ne!(replaced.indices(10, 0), replaced.indices(10, 1));
    assert!(whole.num_samples(0).check(10).is_err());
    assert!(RandomSampler::new(1).indices(0, 0).is_empty());
}

/// Frequencies are within four standard deviations. Without replacement they are worked out by hand: P(first
/// is i) = wᵢ, and the second is drawn from the remaining items.
#[test]
fn weights_are_shares() -> Result<()> {
    let weights = vec![1.0, 0.0, 3.0, 6.0];
    let sampler = WeightedRandomSampler::new(weights.clone(), 20_000, 5)?;
    let mut counts = [0.0f64; 4];
    sampler.indices(4, 0).into_iter().for_each(|index| counts[index] += 1.0);
    for (count, weight) in counts.iter().zip(&weights) {
        let share = weight / 10.0;
        let deviation = (20_000.0 * share * (1.0 - share)).sqrt();
        assert!((count - 20_000.0 * share).abs() <= 4.0 * deviation, "{counts:?}");
    }
    let pairs = WeightedRandomSampler::new(weights, 2, 9)?.without_replacement()?;
    let mut found = [[0.0f64; 4]; 4];
    for epoch in 0..20_000 {
        let [first, second] = pairs.indices(4, epoch)[..] else {
            return Err(Error::invalid("test", "not two"));
        };
        found[first][second] += 1.0;
    }
    for (i, j, share) in
        [(0, 2, 0.1 * 3.0 / 9.0), (2, 3, 0.3 * 6.0 / 7.0), (3, 0, 0.6 * 1.0 / 4.0), (3, 2, 0.6 * 0.75)]
    {
        let deviation = (20_000f64 * share * (1.0 - share)).sqrt();
        assert!((found[i][j] - 20_000.0 * share).abs() <= 4.0 * deviation, "{i} {j}: {found:?}");
    }
    assert!(found.iter().enumerate().all(|(i, row)| row[i] == 0.0 && row[1] == 0.0));
    for bad in [
        vec![],
        vec![0.0, 0.0],
        vec![1.0, -1.0],
        vec![f64::NAN],
        vec![f64::INFINITY],
        vec![f64::MAX, f64::MAX],
    ] {
        assert!(WeightedRandomSampler::new(bad, 1, 0).is_err());
    }
    assert!(WeightedRandomSampler::new(vec![1.0], 0, 0).is_err());
    assert!(WeightedRandomSampler::new(vec![1.0, 0.0], 2, 0)?.without_replacement().is_err());
    let message = pairs.check(5).unwrap_err().to_string();
    assert!(message.contains("4 weights for 5 items"), "{message}");
    Ok(())
}

#[test]
fn buckets_hold_similar_lengths() -> Result<()> {
    let lengths: Vec<usize> = (0..50).map(|i| i * 7 % 50).collect();
    let sampler = BucketSampler::new(lengths.clone(), 8, 1)?;
    let order = sampler.indices(50, 0);
    assert_eq!(sorted(order.clone()), (0..50).collect::<Vec<_>>());
    for batch in order.chunks(8) {
        let of = sorted(batch.iter().map(|&index| lengths[index]).collect());
        assert!(of[of.len() - 1] - of[0] < 8, "{of:?}");
    }
    assert_ne!(sampler.indices(50, 0), sampler.indices(50, 1));
    assert!(BucketSampler::new(lengths, 0, 1).is_err() && sampler.check(49).is_err());
    Ok(())
}

/// `list(DistributedSampler(range(n), replicas, rank, shuffle=False, drop_last=drop_last))` of PyTorch 2.15.
#[test]
fn parts_are_those_of_pytorch() -> Result<()> {
    let part = |items: usize, replicas: usize, rank: usize, drop_last: bool| {
        Ok::<_, Error>(DistributedSampler::new(replicas, rank)?.drop_last(drop_last).indices(items, 0))
    };
    for (items, replicas, drop_last, expected) in [
        (10, 4, false, vec![vec![0, 4, 8], vec![1, 5, 9], vec![2, 6, 0], vec![3, 7, 1]]),
        (10, 4, true, vec![vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]]),
        (8, 4, false, vec![vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]]),
        (8, 4, true, vec![vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]]),
        // With fewer items than replicas the items are repeated more than once.
        (2, 5, false, vec![vec![0], vec![1], vec![0], vec![1], vec![0]]),
    ] {
        for (rank, expected) in expected.into_iter().enumerate() {
            assert_eq!(part(items, replicas, rank, drop_last)?, expected, "{items} {replicas} {rank}");
        }
    }
    // Each process has its own share of one random order, which differs between epochs.
    let random = |rank, epoch| Ok::<_, Error>(DistributedSampler::new(3, rank)?.shuffle(5).indices(9, epoch));
    assert_eq!(sorted([random(0, 2)?, random(1, 2)?, random(2, 2)?].concat()), (0..9).collect::<Vec<_>>());
    assert_ne!(random(0, 2)?, random(0, 3)?);
    assert!(DistributedSampler::new(0, 0).is_err() && DistributedSampler::new(2, 2).is_err());
    assert!(DistributedSampler::new(5, 0)?.drop_last(true).check(4).is_err());
    let weighted = DistributedSampler::new(2, 0)?.of(WeightedRandomSampler::new(vec![1.0; 3], 6, 0)?);
    assert!(weighted.check(4).is_err() && weighted.check(3).is_ok());
    Ok(())
}

#[test]
fn subsets_are_shuffled_and_checked() {
    let sampler = SubsetRandomSampler::new(vec![2, 4, 6], 3);
    assert_eq!(sorted(sampler.indices(7, 0)), [2, 4, 6]);
    assert!(sampler.check(6).is_err() && sampler.check(7).is_ok());
    assert!(SubsetRandomSampler::new(vec![], 3).check(7).is_err());
}
