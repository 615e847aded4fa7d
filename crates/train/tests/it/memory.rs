//! Memory beside the plan: steps and evaluation allocate nothing, and saving holds no tensor.

use crate::common;

use crate::counting::{allocations_of, peak_of};
use common::{cpu, digits, folder, plan, training};
use memfit_exec::TensorView;
use memfit_nn::zoo::Mlp;
use memfit_train::{CheckpointKind, Progress, RunDir, Session, run_dir};
use memfit_transform::{Half, Precision, Training};

#[test]
fn steps_and_evaluation_allocate_nothing_after_the_first() {
    let training = Training { precision: Precision::Mixed(Half::F16), ..training() };
    for micro_batch in [None, Some(2)] {
        let mut session = Session::new(cpu(), plan(digits(), &training, 4, micro_batch), 1).unwrap();
        let (x, y) = (vec![0.5; 4 * 64], [1, 2, 3, 4]);
        let batch = [("x", TensorView::f32(&[4, 8, 8, 1], &x)), ("y", TensorView::i32(&[4], &y))];
        let mut room = vec![0; session.eval_bytes("logits").unwrap()];
        let mut round = |session: &mut Session<_>| {
            session.step(&batch, 1e-3).unwrap();
            assert!(session.skipped_steps().unwrap().is_some());
            // Three rows do not fill a micro-batch.
            let rows = [("x", TensorView::f32(&[3, 8, 8, 1], &x[..192])), ("y", TensorView::i32(&[3], &y[..3]))];
            session.eval(&rows, "logits", &mut room, |_, _| Ok(())).unwrap();
        };
        round(&mut session);
        assert_eq!(allocations_of(|| (0..20).for_each(|_| round(&mut session))), 0);
    }
}

#[test]
fn a_checkpoint_is_written_and_read_in_small_pieces() {
    let folder = folder("pieces");
    let model = Mlp::new(64, &[4096], 10);
    let plan = plan(&model, &training(), 2, None);
    let state_bytes = plan.state_bytes as i64;
    let run = RunDir::create(&folder, &plan, &Default::default()).unwrap();
    let session = Session::new(cpu(), plan, 1).unwrap();
    let saving = peak_of(|| run.save(&session, &Progress::default(), &[CheckpointKind::Last]).unwrap());
    drop(session);
    let mut resumed = None;
    let reading = peak_of(|| {
        let saved = run_dir::read(&folder, CheckpointKind::Last).unwrap();
        resumed = Some(Session::resume(cpu(), &saved).unwrap());
    });
    println!("{state_bytes} bytes of states: {saving} to save, {reading} to read with the plan");
    assert!(saving < 128 << 10 && reading < state_bytes / 4, "{saving} to save, {reading} to read");
    std::fs::remove_dir_all(folder).unwrap();
}
